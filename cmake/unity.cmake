# penstock_unity(TARGET FILES): with PENSTOCK_UNITY, the compiler takes FILES source files of the target at a time. Most
# of its time goes into headers, and into templates that it instantiates anew for each file.
function(penstock_unity target files)
  if(PENSTOCK_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${files})
    # gcc treats the included source files as headers and warns about their unnamed namespaces.
    target_compile_options(${target} PRIVATE -Wno-subobject-linkage)
  endif()
endfunction()
