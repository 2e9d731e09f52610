#pragma once

// Costs of coding and of the transport on a worker's processor, measured with the codecs and the
// transport that the worker uses. All figures are processor time, so that a quota or a neighbour
// changes little. One thread; some tenths of a second on a small device.

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/transport/link/transport.h"

namespace runnel {

// Seconds to encode or decode a byte of an FP32 tensor, the largest over the codecs; 0 without
// codecs. Errors as MakeCodec.
absl::StatusOr<double> MeasureCoding(const std::vector<std::string>& codecs);

// Costs at one end of a link.
struct TransportCosts {
  double frame_seconds = 0;  // a frame that goes and its acknowledgement that comes, or the reverse
  double byte_seconds = 0;   // seconds of a payload byte
};
// Sends frames to itself over loopback. Other threads of this process should rest: all of them
// count. Errors as Transport; DeadlineExceeded: no answer in two seconds.
absl::StatusOr<TransportCosts> MeasureTransport(Transport& transport);

}  // namespace runnel
