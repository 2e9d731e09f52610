#pragma once

// Places in the memory of the program under qemu-hexagon that others have to know. Freestanding,
// for both compilers.

#include <stdint.h>

namespace runnel::hexagon {

// The tightly coupled memory, as long as nothing else lies there.
inline constexpr uint32_t kEmulatedVtcm = 0xd8000000;

}  // namespace runnel::hexagon
