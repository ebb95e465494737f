# penstock_programs(GROUP FILES... FOLDER LIBS... [SOURCES...] [DEFINITIONS...]): one program in FOLDER for each file
# NAME.cc, which has a main() of its own; SOURCES belong to each of them. With PENSTOCK_UNITY the compiler takes all of
# them at a time, because a small program that uses LibTorch takes 10 s, and nine of them go into headers: GROUP is then
# the only program, and NAME a link to it that runs the main() of NAME.cc.
#
# For that, each file is included in a namespace of its own, after the headers of all of them. So it opens no namespace of
# a library, and its main() takes two arguments and ends with a return. The file of a group of one is compiled as it is.
function(penstock_programs group)
  cmake_parse_arguments(arg "" "FOLDER" "FILES;LIBS;SOURCES;DEFINITIONS" ${ARGN})
  list(TRANSFORM arg_FILES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(LENGTH arg_FILES number)
  if(NOT PENSTOCK_UNITY OR number EQUAL 1)
    if(arg_SOURCES)
      add_library(${group}_sources OBJECT ${arg_SOURCES})
      penstock_program_settings(${group}_sources)
      list(APPEND arg_LIBS ${group}_sources)
    endif()
    foreach(file ${arg_FILES})
      cmake_path(GET file STEM name)
      add_executable(${name} ${file})
      penstock_program_settings(${name})
    endforeach()
    return()
  endif()

  set(headers "")
  set(programs "")
  set(calls "")
  set(links "")
  foreach(file ${arg_FILES})
    cmake_path(GET file STEM name)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} lines REGEX "^#include ")
    list(APPEND headers ${lines})
    string(APPEND programs "namespace program_${name} {\n#include \"${file}\"\n}\n")
    string(APPEND calls "  if (name == \"${name}\") return program_${name}::main(count, arguments);\n")
    list(APPEND links COMMAND ${CMAKE_COMMAND} -E create_hardlink $<TARGET_FILE:${group}> ${arg_FOLDER}/${name})
    add_executable(${name} IMPORTED GLOBAL)
    set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${arg_FOLDER}/${name})
  endforeach()
  list(APPEND headers "#include <filesystem>" "#include <iostream>" "#include <string>")
  list(REMOVE_DUPLICATES headers)
  list(JOIN headers "\n" headers)
  file(CONFIGURE OUTPUT ${group}.cc @ONLY CONTENT "@headers@

@programs@
int main(int count, char** arguments) {
  const std::string name = std::filesystem::path(arguments[0]).filename();
@calls@  std::cerr << \"there is no program '\" << name << \"' in @group@\\n\";
  return 2;
}
")
  add_executable(${group} ${CMAKE_CURRENT_BINARY_DIR}/${group}.cc ${arg_SOURCES})
  penstock_program_settings(${group})
  target_include_directories(${group} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})  # for headers beside the files
  add_custom_command(TARGET ${group} POST_BUILD ${links})
endfunction()

# What a target of the function above needs; reads that function's arguments.
macro(penstock_program_settings target)
  target_link_libraries(${target} PRIVATE ${arg_LIBS} penstock_warnings)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${target} PRIVATE ${arg_DEFINITIONS})
  penstock_precompiled_test(${target})
  set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${arg_FOLDER})
endmacro()
