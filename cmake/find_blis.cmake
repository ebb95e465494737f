# BLIS: products of few rows without a copy of the weights (kernels/no_pack_linear.h). Sets PENSTOCK_FOUND_BLIS and
# makes the target penstock::blis. The archive, because the shared library bears the names of BLAS and would answer
# LibTorch's own calls of them.
find_path(PENSTOCK_BLIS_HEADERS blis.h PATH_SUFFIXES blis-serial blis)
find_library(PENSTOCK_BLIS_ARCHIVE libblis.a PATH_SUFFIXES blis-serial)
mark_as_advanced(PENSTOCK_BLIS_HEADERS PENSTOCK_BLIS_ARCHIVE)
set(PENSTOCK_FOUND_BLIS OFF)
if(PENSTOCK_BLIS_HEADERS AND PENSTOCK_BLIS_ARCHIVE)
  set(PENSTOCK_FOUND_BLIS ON)
  if(NOT TARGET penstock::blis)
    add_library(penstock::blis STATIC IMPORTED)
    set_target_properties(penstock::blis PROPERTIES
      IMPORTED_LOCATION "${PENSTOCK_BLIS_ARCHIVE}"
      INTERFACE_INCLUDE_DIRECTORIES "${PENSTOCK_BLIS_HEADERS}"
      INTERFACE_LINK_LIBRARIES "Threads::Threads;m")
  endif()
endif()
