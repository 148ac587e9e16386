# What the topology room reads machines with.
find_package(PkgConfig REQUIRED)
pkg_check_modules(hwloc REQUIRED IMPORTED_TARGET hwloc>=2.0)
find_package(pugixml REQUIRED)
foreach(target IN ITEMS tutti_topology tutti_static tutti)
  target_link_libraries(${target} PRIVATE PkgConfig::hwloc pugixml)
endforeach()
