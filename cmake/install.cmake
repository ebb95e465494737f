# What is installed: both libraries with their headers, the programs, and a package that find_package(penstock) reads.
# The prefix may be moved afterwards. LibTorch stays where it is: the package looks for it again.
include(CMakePackageConfigHelpers)
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/penstock)

install(TARGETS penstock_planning EXPORT penstock_planning_targets FILE_SET HEADERS)
install(EXPORT penstock_planning_targets FILE penstockPlanningTargets.cmake NAMESPACE penstock:: DESTINATION ${package_folder})
install(TARGETS penstock_text EXPORT penstock_runtime_targets FILE_SET HEADERS)
if(PENSTOCK_TORCH)
  install(TARGETS penstock EXPORT penstock_runtime_targets FILE_SET HEADERS)
  install(EXPORT penstock_runtime_targets
    FILE penstockRuntimeTargets.cmake NAMESPACE penstock:: DESTINATION ${package_folder})
  install(FILES
    cmake/find_blis.cmake cmake/find_text_libraries.cmake cmake/find_torch.cmake cmake/where_is_torch.py
    DESTINATION ${package_folder})
endif()

# The second program stands apart, because only the first one calls it.
install(TARGETS penstock_program DESTINATION ${CMAKE_INSTALL_BINDIR})
set(installed penstock_program)
if(TARGET penstock_runtime_program)
  install(TARGETS penstock_runtime_program DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/penstock)
  list(APPEND installed penstock_runtime_program)
endif()
# Our own libraries, where they are shared ones, lie beside the programs; LibTorch stays where it was linked from. Its
# folder is named, because CMake leaves link folders inside this source tree, as build/venv is one, out of the path.
set(installed_rpath "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}" "$ORIGIN/../../${CMAKE_INSTALL_LIBDIR}")
if(TARGET torch_cpu)
  list(APPEND installed_rpath "$<TARGET_FILE_DIR:torch_cpu>")
endif()
set_target_properties(${installed} PROPERTIES INSTALL_RPATH "${installed_rpath}" INSTALL_RPATH_USE_LINK_PATH ON)

configure_package_config_file(cmake/penstockConfig.cmake.in penstockConfig.cmake INSTALL_DESTINATION ${package_folder})
# Before 1.0 a new minor version may break.
write_basic_package_version_file(penstockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/penstockConfig.cmake ${PROJECT_BINARY_DIR}/penstockConfigVersion.cmake
  DESTINATION ${package_folder})
install(FILES LICENSE NOTICE DESTINATION ${CMAKE_INSTALL_DOCDIR})
