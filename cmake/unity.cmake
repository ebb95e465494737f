# penstock_unity(TARGET FILES): with PENSTOCK_UNITY, the compiler takes FILES source files of the target at a time. Most
# of its time goes into headers, and into templates that it instantiates anew for each file.
function(penstock_unity target files)
  if(PENSTOCK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
    # gcc treats the included source files as headers and warns about their unnamed namespaces.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

# penstock_unity_groups(TARGET FOLDERS...): the same, with all source files of a folder and those below it at a time. The
# files of other folders stay alone.
function(penstock_unity_groups target)
  penstock_unity(${target} 0)
  set_target_properties(${target} PROPERTIES UNITY_BUILD_MODE GROUP)
  get_target_property(sources ${target} SOURCES)
  foreach(folder ${ARGN})
    set(path ${CMAKE_CURRENT_SOURCE_DIR}/${folder})
    foreach(file ${sources})
      cmake_path(ABSOLUTE_PATH file BASE_DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} OUTPUT_VARIABLE full)
      cmake_path(IS_PREFIX path ${full} is_below)
      if(is_below)
        set_source_files_properties(${file} TARGET_DIRECTORY ${target} PROPERTIES UNITY_GROUP ${folder})
      endif()
    endforeach()
  endforeach()
endfunction()
