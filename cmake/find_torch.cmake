# Finds LibTorch. Also part of the installed package, where the place it was built with is tried too.
#
# penstock_find_torch(PROBLEM [HINTS folder...] [PYTHONS program...]) looks, in this order, at
#   CMAKE_PREFIX_PATH or Torch_DIR; HINTS, folders with Torch's CMake files; what each of PYTHONS would import as torch.
# Afterwards Torch_FOUND, Torch_VERSION and TORCH_LIBRARIES are as find_package(Torch) sets them, and PROBLEM names a
# variable that is empty or says in one line what is wrong.
set(PENSTOCK_TORCH_MINIMUM 2.5)
set(penstock_torch_asks ${CMAKE_CURRENT_LIST_DIR}/where_is_torch.py)

macro(penstock_find_torch problem)
  cmake_parse_arguments(penstock_torch "" "" "HINTS;PYTHONS" ${ARGN})
  # The wheels ship no kineto library, and Torch's configuration warns about that each time.
  set(penstock_torch_level "${CMAKE_MESSAGE_LOG_LEVEL}")
  set(CMAKE_MESSAGE_LOG_LEVEL ERROR)
  find_package(Torch QUIET PATHS ${penstock_torch_HINTS})
  foreach(python IN LISTS penstock_torch_PYTHONS)
    if(NOT Torch_FOUND)
      execute_process(COMMAND ${python} ${penstock_torch_asks} ${PENSTOCK_TORCH_MINIMUM}
        OUTPUT_VARIABLE penstock_torch_folder OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(penstock_torch_folder)
        find_package(Torch QUIET PATHS ${penstock_torch_folder} NO_DEFAULT_PATH)
      endif()
    endif()
  endforeach()
  set(CMAKE_MESSAGE_LOG_LEVEL "${penstock_torch_level}")

  set(${problem} "")
  if(NOT Torch_FOUND)
    set(${problem} "LibTorch not found: run scripts/bootstrap.sh, or set CMAKE_PREFIX_PATH to a LibTorch >= \
${PENSTOCK_TORCH_MINIMUM}, or do without it (-DPENSTOCK_TORCH=OFF, component planning)")
  elseif(Torch_VERSION VERSION_LESS PENSTOCK_TORCH_MINIMUM)
    set(${problem} "LibTorch ${Torch_VERSION} in ${Torch_DIR} is too old: at least ${PENSTOCK_TORCH_MINIMUM} is needed; \
point CMAKE_PREFIX_PATH at a newer one")
  elseif(TORCH_CXX_FLAGS MATCHES "_GLIBCXX_USE_CXX11_ABI=0")
    set(${problem} "LibTorch ${Torch_VERSION} in ${Torch_DIR} is built with the old C++ ABI, every other \
library here with the new one: take a newer LibTorch")
  endif()
endmacro()
