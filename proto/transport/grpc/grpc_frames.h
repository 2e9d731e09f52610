#pragma once

// Frames as calls of gRPC, for any accepting end.

namespace runnel {

// The call: a stream of raw bytes both ways (frame_assembler.h).
inline constexpr char kGrpcMethod[] = "/runnel.Data/Frames";

}  // namespace runnel
