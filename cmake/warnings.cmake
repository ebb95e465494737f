# Strict where this project is built for itself, quiet where it is a part of another.
add_library(penstock_warnings INTERFACE)
if(PROJECT_IS_TOP_LEVEL)
  target_compile_options(penstock_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Werror)
  # At -O3, gcc 12 sees overlapping or endless copies in plain additions of strings (its bug 105651).
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(penstock_warnings INTERFACE "$<$<CONFIG:Release>:-Wno-restrict;-Wno-stringop-overflow;-Wno-array-bounds;-Wno-free-nonheap-object>")
  endif()
endif()
if(PENSTOCK_SANITIZE)
  add_compile_options(-fsanitize=${PENSTOCK_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # Checks of each pointer before its use take a quarter of the compiler's time. The address sanitizer sees accesses
  # through null pointers too, and the fuzzers keep both checks.
  if(PENSTOCK_SANITIZE MATCHES "address")
    add_compile_options(-fno-sanitize=null,alignment)
  endif()
  add_link_options(-fsanitize=${PENSTOCK_SANITIZE})
endif()
if(PENSTOCK_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined -fno-omit-frame-pointer -fno-sanitize-recover=all)
  # The fuzzer sees the operands of comparisons, to insert them into its inputs. In formats of text it uses those of
  # memcmp() and strcmp(); those of single characters and numbers take a third of the time and say nothing.
  add_compile_options(-fno-sanitize-coverage=trace-cmp)
  add_link_options(-fsanitize=address,undefined)
endif()
