#include "kernels/hexagon/dsp/server.h"

#include "kernels/hexagon/dsp/platform.h"

namespace runnel::hexagon {

DspReply Server::Answer(const DspRequest& request) {
  DspReply reply;
  reply.sequence = request.sequence;
  if (request.magic != kDspMagic) {
    reply.status = DspStatus::kBadRequest;
  } else if (request.verb == DspVerb::kOpen) {
    reply.status = Open(request);
  } else if (request.verb == DspVerb::kRun) {
    reply.status = Run(request, reply.failed_op);
  }
  return reply;
}

void Server::Close() {
  if (machine_.shared == nullptr) return;
  VotePower(false);
  machine_.shared = nullptr;
}

DspStatus Server::Open(const DspRequest& request) {
  if (machine_.shared != nullptr || request.protocol != kDspProtocol) return DspStatus::kBadRequest;
  uint8_t* shared = MapShared(request);
  uint8_t* own = shared == nullptr ? nullptr : MapPrivate(request, shared);
  if (own == nullptr) return DspStatus::kNoMemory;
  const uint32_t half = request.private_bytes / 2;
  machine_.shared = shared;
  machine_.shared_bytes = request.shared_bytes;
  machine_.vtcm_bytes = request.vtcm_bytes;
  // Kernels also read a little before what they were given.
  machine_.scratch.Set(own + kSlackBytes, half - kSlackBytes);
  machine_.packed.Set(own + half, half);
  VotePower(true);
  return DspStatus::kOk;
}

DspStatus Server::Run(const DspRequest& request, uint32_t& failed) {
  if (machine_.shared == nullptr || request.op_count > kMaxOps) return DspStatus::kBadRequest;
  machine_.vtcm = AcquireVtcm(machine_.vtcm_bytes);
  if (machine_.vtcm == nullptr) return DspStatus::kNoVtcm;
  DspStatus status = DspStatus::kOk;
  for (uint32_t i = 0; i < request.op_count && status == DspStatus::kOk; ++i) {
    DspOp& op = desk()->ops[i];
    failed = i;
    const Kernel kernel = FindKernel(op.code);
    machine_.scratch.Reset();
    const DspCounts before = ReadCounts();
    status = kernel == nullptr ? DspStatus::kUnknownCode : kernel(machine_, op);
    const DspCounts after = ReadCounts();
    if (status != DspStatus::kOk) break;
    op.counts.packets = after.packets - before.packets;
    op.counts.instructions = after.instructions - before.instructions;
    op.counts.vector_instructions = after.vector_instructions - before.vector_instructions;
    ShowProgress(&desk()->ops_done, i + 1);
  }
  ReleaseVtcm(machine_.vtcm);
  machine_.vtcm = nullptr;
  return status;
}

}  // namespace runnel::hexagon
