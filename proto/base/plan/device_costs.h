#pragma once

// Costs of a device's processor beside its layers, as the device measured them. Constants of
// another machine would be wrong by ten times on a small one.

namespace runnel {

// A value. 0: not measured.
struct DeviceCosts {
  // Share of forward and input-gradient in the time of ranges of layers. The rest is
  // weight-gradient and update.
  double forward_share = 0;
  double input_gradient_share = 0;
  // Processor seconds: to encode or decode a byte of an FP32 tensor, whichever takes longer;
  double coder_seconds_per_byte = 0;
  // at one end of a link, for a frame and its acknowledgement, and for a byte of the frame.
  double frame_seconds = 0;
  double link_byte_seconds = 0;

  friend bool operator==(const DeviceCosts&, const DeviceCosts&) = default;
};

}  // namespace runnel
