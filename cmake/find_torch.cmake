# LibTorch, in this order: CMAKE_PREFIX_PATH or Torch_DIR, a Python that can import torch, the virtual
# environment that scripts/bootstrap.sh makes below build/. Also part of the installed package.
set(PENSTOCK_TORCH_MINIMUM 2.4)

macro(penstock_try_torch)
  if(NOT Torch_FOUND)
    # The wheel ships no static kineto; pointing its lookup at a library that is linked anyway keeps
    # Torch's own configuration from warning about it on every configure.
    foreach(root ${CMAKE_PREFIX_PATH} ${Torch_DIR}/../../.. ${ARGN}/../..)
      if(NOT kineto_LIBRARY AND EXISTS ${root}/lib/libc10.so)
        set(kineto_LIBRARY ${root}/lib/libc10.so CACHE FILEPATH "see find_torch.cmake" FORCE)
      elseif(NOT kineto_LIBRARY AND EXISTS ${root}/../../lib/libc10.so)
        set(kineto_LIBRARY ${root}/../../lib/libc10.so CACHE FILEPATH "see find_torch.cmake" FORCE)
      endif()
    endforeach()
    find_package(Torch QUIET PATHS ${ARGN})
  endif()
endmacro()

penstock_try_torch()
if(NOT Torch_FOUND)
  find_program(PENSTOCK_PYTHON python3)
  foreach(python ${PENSTOCK_PYTHON} ${CMAKE_CURRENT_LIST_DIR}/../build/venv/bin/python)
    if(NOT Torch_FOUND AND EXISTS ${python})
      execute_process(COMMAND ${python} -W ignore -c "import torch; print(torch.utils.cmake_prefix_path)"
        OUTPUT_VARIABLE penstock_torch_path OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
      if(penstock_torch_path)
        penstock_try_torch(${penstock_torch_path})
      endif()
    endif()
  endforeach()
endif()
if(NOT Torch_FOUND)
  message(FATAL_ERROR "LibTorch not found. Run scripts/bootstrap.sh, or set CMAKE_PREFIX_PATH to a LibTorch "
    ">= ${PENSTOCK_TORCH_MINIMUM}, or configure with -DPENSTOCK_TORCH=OFF for the torch-free part alone.")
endif()
if(Torch_VERSION VERSION_LESS PENSTOCK_TORCH_MINIMUM)
  message(FATAL_ERROR "LibTorch ${Torch_VERSION} in ${Torch_DIR} is too old: Penstock needs >= "
    "${PENSTOCK_TORCH_MINIMUM}. Point CMAKE_PREFIX_PATH at a newer one.")
endif()
