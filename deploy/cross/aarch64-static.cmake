# As aarch64.cmake, for binaries without any shared library: one file that runs on a phone or a Pi of any Linux. Libraries
# come from pkg-config instead of the packages' CMake files, which know the shared ones only.
#
#   cmake --preset release -B build/arm64-static --toolchain deploy/cross/aarch64-static.cmake -DRUNNEL_TORCH=OFF
#   ninja -C build/arm64-static runnel-worker && aarch64-linux-gnu-strip build/arm64-static/bin/runnel-worker
#
# Address workers by number: a static glibc cannot look up names on a phone.

include(${CMAKE_CURRENT_LIST_DIR}/aarch64.cmake)

set(CMAKE_EXE_LINKER_FLAGS_INIT -static)
foreach(package absl gRPC spdlog)
  set(${package}_DIR ${CMAKE_CURRENT_LIST_DIR}/static CACHE PATH "Static libraries of ${package}")
endforeach()
set(Protobuf_USE_STATIC_LIBS ON CACHE BOOL "Static")
set(OPENSSL_USE_STATIC_LIBS ON CACHE BOOL "Static")
