#pragma once

// How frames travel as calls of gRPC, whoever accepts them.

namespace runnel {

// The call: a stream of raw bytes both ways (frame_assembler.h).
inline constexpr char kGrpcMethod[] = "/runnel.Data/Frames";

}  // namespace runnel
