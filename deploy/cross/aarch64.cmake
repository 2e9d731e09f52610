# Builds for 64-bit ARM (Raspberry Pi, phones) on another Debian machine, against a folder of arm64 packages that
# deploy/cross/sysroot.sh makes; tests run under QEMU.
#
#   bash deploy/cross/sysroot.sh build/arm64-sysroot
#   cmake --preset dev -B build/arm64 --toolchain deploy/cross/aarch64.cmake -DRUNNEL_TORCH=OFF
#   ninja -C build/arm64 && ctest --test-dir build/arm64
#
# RUNNEL_SYSROOT    the folder of packages
# QEMU_CPU          environment variable: the emulated processor, e.g. cortex-a72, cortex-a76, max

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)

set(RUNNEL_SYSROOT ${CMAKE_CURRENT_LIST_DIR}/../../build/arm64-sysroot CACHE PATH "Folder of arm64 packages")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES RUNNEL_SYSROOT)
get_filename_component(CMAKE_SYSROOT ${RUNNEL_SYSROOT} ABSOLUTE)

set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# The cross compiler looks for linkers under names with its prefix; Debian's mold has none.
set(RUNNEL_MOLD OFF CACHE STRING "No mold")

set(CMAKE_FIND_ROOT_PATH ${CMAKE_SYSROOT})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

find_program(RUNNEL_QEMU NAMES qemu-aarch64 qemu-aarch64-static)
if(RUNNEL_QEMU)
  set(CMAKE_CROSSCOMPILING_EMULATOR ${RUNNEL_QEMU} -L ${CMAKE_SYSROOT})
endif()
