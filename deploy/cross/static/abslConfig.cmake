# Every Abseil library of the build is one group of all static libraries that gRPC needs, Abseil's among them: the linker
# takes what it wants in whatever order.
set(runnel_pkg_config
    ${CMAKE_COMMAND} -E env --unset=PKG_CONFIG_PATH "PKG_CONFIG_SYSROOT_DIR=${CMAKE_SYSROOT}"
    "PKG_CONFIG_LIBDIR=${CMAKE_SYSROOT}/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/pkgconfig:${CMAKE_SYSROOT}/usr/share/pkgconfig"
    pkg-config)
execute_process(COMMAND ${runnel_pkg_config} --static --libs-only-l grpc++ protobuf absl_statusor absl_str_format
                OUTPUT_VARIABLE runnel_libraries OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "-l[^ ]+" runnel_libraries "${runnel_libraries}")
list(REMOVE_DUPLICATES runnel_libraries)
list(JOIN runnel_libraries "," runnel_libraries)

foreach(name inlined_vector span status statusor str_format strings)
  if(NOT TARGET absl::${name})
    add_library(absl::${name} INTERFACE IMPORTED)
    set_target_properties(absl::${name} PROPERTIES
                          INTERFACE_LINK_LIBRARIES "-Wl,--start-group,${runnel_libraries},--end-group")
  endif()
endforeach()
