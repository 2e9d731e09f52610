#include "kernels/backends/hexagon/dsp/server.h"

#include "kernels/backends/hexagon/dsp/kept_lists.h"
#include "kernels/backends/hexagon/dsp/platform.h"
#include "kernels/backends/hexagon/dsp/product/shifted_slices.h"

namespace runnel::hexagon {
namespace {

// With less the products' tiles do not fit.
constexpr uint32_t kLeastVtcmBytes = 32 << 10;

// The server's; by themselves, since memory of zeros is not in the object's file.
KeptLists kept_lists;

}  // namespace

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
  DropVtcm();
  kept_lists.Clear();
  machine_.shared = nullptr;
}

DspStatus Server::Open(const DspRequest& request) {
  if (machine_.shared != nullptr || request.protocol != kDspProtocol) return DspStatus::kBadRequest;
  if (request.packed_bytes + kSlackBytes > request.private_bytes) return DspStatus::kBadRequest;
  if (request.threads < 1 || request.threads > kMaxThreads) return DspStatus::kBadRequest;
  uint8_t* shared = MapShared(request);
  uint8_t* own = shared == nullptr ? nullptr : MapPrivate(request, shared);
  if (own == nullptr) return DspStatus::kNoMemory;
  const uint32_t scratch = request.private_bytes - request.packed_bytes;
  threads_ = request.threads;
  machine_.shared = shared;
  machine_.shared_bytes = request.shared_bytes;
  vtcm_bytes_ = request.vtcm_bytes;
  // Kernels also read a little before what they were given.
  machine_.scratch.Set(own + kSlackBytes, scratch - kSlackBytes);
  packed_ = own + scratch;
  packed_bytes_ = request.packed_bytes;
  machine_.packed.Set(packed_, packed_bytes_);
  VotePower(true);
  return DspStatus::kOk;
}

bool Server::TakeVtcm() {
  const Vtcm vtcm = HoldVtcm(vtcm_bytes_, kLeastVtcmBytes);
  machine_.vtcm = vtcm.base;
  machine_.vtcm_bytes = vtcm.bytes & ~uint32_t{127};
  // Each thread's tiles have to fit its share.
  machine_.threads = threads_;
  while (machine_.threads > 1 && machine_.vtcm_bytes / machine_.threads < kLeastVtcmBytes)
    --machine_.threads;
  return vtcm.base != nullptr;
}

DspStatus Server::Run(const DspRequest& request, uint32_t& failed) {
  if (machine_.shared == nullptr) return DspStatus::kBadRequest;
  if (request.packed_bytes > packed_bytes_ || request.kept_bytes > request.packed_bytes)
    return DspStatus::kBadRequest;
  const DspOp* const ops = kept_lists.Find(request, *desk());
  if (ops == nullptr) return DspStatus::kBadRequest;
  const uint32_t shared_bytes = request.packed_bytes - request.kept_bytes;
  machine_.packed.Limit(shared_bytes);
  machine_.kept.Set(packed_ + shared_bytes, request.kept_bytes);
  if (!TakeVtcm()) return DspStatus::kNoVtcm;
  DspStatus status = DspStatus::kOk;
  for (uint32_t i = 0; i < request.op_count && status == DspStatus::kOk; ++i) {
    const DspOp& op = ops[i];
    failed = i;
    // Operations leave nothing there that another one needs.
    if (i > 0 && IsVtcmAsked()) {
      RestVtcm();
      if (!TakeVtcm()) return DspStatus::kVtcmGone;
    }
    const Kernel kernel = FindKernel(op.code);
    machine_.scratch.Reset();
    const DspCounts before = ReadCounts();
    if (kernel == nullptr) {
      status = DspStatus::kUnknownCode;
    } else if ((op.flags & kFlagShifted) != 0) {
      status = RunShiftedSlices(machine_, op, kernel);
    } else {
      status = kernel(machine_, op);
    }
    if (status != DspStatus::kOk) break;
    ShowCounts(desk()->counts[i], before);
    ShowProgress(&desk()->ops_done, i + 1);
  }
  RestVtcm();
  machine_.vtcm = nullptr;
  return status;
}

}  // namespace runnel::hexagon
