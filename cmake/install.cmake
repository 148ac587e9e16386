# What `cmake --install` puts where: headers, the shared library, `tutti`, and what CMake and pkg-config find it by. The package
# may be moved as a whole. The static library stays here: it would pass its own libraries on to whoever links it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS tutti EXPORT tutti_targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tutti DESTINATION include FILES_MATCHING PATTERN "*.h")
if(TARGET tutti_cli)
  install(TARGETS tutti_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tutti)
install(EXPORT tutti_targets NAMESPACE tutti:: FILE tuttiTargets.cmake DESTINATION ${package_folder})
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tuttiConfig.cmake.in ${CMAKE_BINARY_DIR}/tuttiConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
# Before 1.0 a minor version may change the interface.
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tuttiConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tuttiConfig.cmake ${CMAKE_BINARY_DIR}/tuttiConfigVersion.cmake DESTINATION ${package_folder})

file(RELATIVE_PATH TUTTI_PREFIX_FROM_PC /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
configure_file(${CMAKE_SOURCE_DIR}/cmake/tutti.pc.in ${CMAKE_BINARY_DIR}/tutti.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/tutti.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
