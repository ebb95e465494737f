# What makes an error in the memory of a release build harder to exploit: checks of buffers by the C library and of the
# stack, programs at random addresses, and tables of functions that are read-only once a program has started.
# tests/reliability/hardening_test.py looks for it in the programs.
option(PENSTOCK_HARDENING "Harden release builds" ON)

include(CheckPIESupported)
check_pie_supported()

add_library(penstock_hardening INTERFACE)
if(PENSTOCK_HARDENING AND NOT PENSTOCK_SANITIZE AND NOT PENSTOCK_FUZZ)
  # Some compilers define _FORTIFY_SOURCE themselves.
  target_compile_options(penstock_hardening INTERFACE
    "$<$<CONFIG:Release>:-fstack-protector-strong;-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=3>")
  target_link_options(penstock_hardening INTERFACE "$<$<CONFIG:Release>:LINKER:-z,relro;LINKER:-z,now>")
endif()
