#pragma once

// Values for instructions that are tried alone.

#include <cstddef>

#include "kernels/ir/program.h"

namespace runnel {

// Values that an instruction may find in a buffer in training, the same for the same number of
// elements; labels and places in windows are 0. data: Buffer::bytes().
void FillRandomly(const Buffer& buffer, std::byte* data);

}  // namespace runnel
