#pragma once

// Cuts a product into tiles and slices.

#include <cstdint>
#include <string>

#include "kernels/backends/host/geometry.h"
#include "kernels/backends/opencl/device/handles.h"
#include "kernels/backends/opencl/device/tile.h"
#include "kernels/ir/program.h"

namespace runnel::opencl {

// Geometry as kernels/backends/opencl/cl/prelude.cl and product.cl lay it out.
struct KernelGeometry {
  cl_int n, c, h, w;
  cl_int oc, oh, ow;
  cl_int kh, kw, sh, sw, ph, pw;
  cl_int groups;
};
struct KernelDivisor {
  cl_int by = 1;
  cl_uint multiplier = 0, shift = 0;
};
// For x / by of 0 <= x < 2^31: (2 x multiplier >> 32) >> shift. by: 1 to 2^31 - 1.
KernelDivisor DivisorOf(int64_t by);
struct KernelPlan {
  cl_int rows, columns, depth;
  cl_int slices, slice_depth;
  cl_uint elements;
  cl_int ic, oc;
  cl_int dh, dw;
  cl_int is_point;
  KernelDivisor inner, positions, width, kw, sh, sw, of_slices, of_channels;
};

KernelGeometry GeometryFor(const Program& program, const Instruction& instruction);

enum class ProductMode : uint8_t { kForward, kInputGradient, kWeightGradient };

struct ProductPlan {
  const char* kernel = nullptr;
  ProductMode mode = ProductMode::kForward;
  bool is_float = false;
  bool reads_weight = false;  // ReadsWeight
  // One input channel a group, forward and backward: no tiles, a work-item for each sum; of a weight-gradient a group
  // for the sums of an output channel and slice.
  bool is_depthwise = false;
  // A forward by F(2x2, 3x3) (winograd.h).
  bool is_winograd = false;
  KernelGeometry geometry = {};
  KernelPlan plan = {};
  Tile tile;
  // The sums of slices are added up afterwards; else the product is written as it is.
  bool is_sliced = false;
  // The kRequantizeCodes that reads its sums is done with it (code_pairs.h): they are nowhere in
  // memory.
  bool gives_codes = false;
  // Products of one class are tuned as one: kernel, kind of window, and sizes to powers of two.
  std::string shape_class;

  int64_t macs() const { return int64_t{plan.rows} * plan.columns * plan.depth * geometry.groups; }
  int64_t slice_bytes() const {
    return is_sliced ? int64_t{plan.slices} * plan.elements * int64_t{sizeof(cl_int)} : 0;
  }
};

bool IsProduct(OpCode code);
// A product that reads a weight, its second input: not a weight-gradient.
bool ReadsWeight(OpCode code);
// Whether it is a product of floats that reads a weight.
bool ReadsFloatWeight(OpCode code);
// The tile does not change the slices: sums of floats are a function of the shape and the device.
// What has no weight, or one that no image of the device reaches, reads none.
ProductPlan PlanProduct(const Program& program, const Instruction& instruction,
                        const DeviceInfo& device, const ChosenTiles& chosen);

}  // namespace runnel::opencl
