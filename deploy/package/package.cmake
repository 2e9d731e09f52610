# What `cmake --install` copies, and the two Debian packages that `cpack -G DEB` makes of it: deploy/package.sh.
include(GNUInstallDirs)
# Packing builds nothing: what is not built is missing.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
set(RUNNEL_UNIT_DIR lib/systemd/system)

install(TARGETS runnel-worker RUNTIME COMPONENT worker)
# Asks for a driver only when it is loaded. Not so LibTorch's backend, which would pull LibTorch onto each board.
if(TARGET runnel_backend_opencl)
  install(TARGETS runnel_backend_opencl runnel_opencl_hosted LIBRARY DESTINATION lib/runnel COMPONENT worker)
  install(TARGETS runnel-vendor-host RUNTIME DESTINATION bin COMPONENT worker)
endif()
install(FILES deploy/systemd/runnel-worker.service DESTINATION ${RUNNEL_UNIT_DIR} COMPONENT worker)
install(TARGETS runnel-central runnel-lab RUNTIME COMPONENT central)
install(FILES deploy/systemd/runnel-central.service DESTINATION ${RUNNEL_UNIT_DIR} COMPONENT central)
install(PROGRAMS deploy/systemd/run-central DESTINATION lib/runnel COMPONENT central)
install(DIRECTORY predictor/profiles DESTINATION ${CMAKE_INSTALL_DATADIR}/runnel COMPONENT central
        FILES_MATCHING PATTERN "*.profile" PATTERN "*.network")
install(DIRECTORY deploy/python/runnel DESTINATION lib/python3/dist-packages COMPONENT central
        FILES_MATCHING PATTERN "*.py")
foreach(program worker central lab)
  set(component central)
  if(program STREQUAL worker)
    set(component worker)
  endif()
  install(FILES deploy/package/completion.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions
          RENAME runnel-${program} COMPONENT ${component})
endforeach()
foreach(component worker central)
  install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/runnel-${component} RENAME copyright COMPONENT ${component})
  # Made by deploy/package.sh from what --help prints.
  install(DIRECTORY ${CMAKE_BINARY_DIR}/man/${component}/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${component} OPTIONAL)
endforeach()

# What deploy/package.sh builds.
add_custom_target(packaged DEPENDS runnel-central runnel-worker runnel-lab)
if(TARGET runnel_backend_opencl)
  add_dependencies(packaged runnel_backend_opencl runnel_opencl_hosted runnel-vendor-host)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME runnel)
set(CPACK_PACKAGE_CONTACT "The Runnel authors <maintainers@runnel.invalid>")
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL worker central)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
if(CMAKE_CROSSCOMPILING)
  set(CPACK_DEBIAN_PACKAGE_ARCHITECTURE arm64)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_FIND_ROOT_PATH})
endif()
set(CPACK_DEBIAN_WORKER_PACKAGE_NAME runnel-worker)
set(CPACK_DEBIAN_WORKER_DESCRIPTION "trains a share of a neural network for a Runnel central
 A daemon for phones, boards and laptops: it takes layers of a network from\n central, trains them on this device's processors and passes values on to the\n next device.")
set(CPACK_DEBIAN_WORKER_PACKAGE_DEPENDS "adduser")
set(CPACK_DEBIAN_WORKER_PACKAGE_SUGGESTS "ocl-icd-libopencl1")
set(CPACK_DEBIAN_WORKER_PACKAGE_CONTROL_EXTRA deploy/package/postinst deploy/package/prerm deploy/package/postrm)
list(TRANSFORM CPACK_DEBIAN_WORKER_PACKAGE_CONTROL_EXTRA PREPEND ${CMAKE_SOURCE_DIR}/)
set(CPACK_DEBIAN_CENTRAL_PACKAGE_NAME runnel-central)
set(CPACK_DEBIAN_CENTRAL_DESCRIPTION "trains a neural network across the devices that you own
 The node that holds the data: it measures devices and links, cuts the network\n into stages and streams micro-batches through them. With runnel-lab, which\n simulates and compares plans.")
set(CPACK_DEBIAN_CENTRAL_PACKAGE_DEPENDS "adduser, runnel-worker (= ${PROJECT_VERSION})")
set(CPACK_DEBIAN_CENTRAL_PACKAGE_SUGGESTS "python3-torch")
set(CPACK_DEBIAN_CENTRAL_PACKAGE_CONTROL_EXTRA
    deploy/package/central/postinst deploy/package/central/prerm deploy/package/central/postrm)
list(TRANSFORM CPACK_DEBIAN_CENTRAL_PACKAGE_CONTROL_EXTRA PREPEND ${CMAKE_SOURCE_DIR}/)
include(CPack)
