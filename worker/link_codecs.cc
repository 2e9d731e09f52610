#include "worker/link_codecs.h"

#include "absl/strings/numbers.h"
#include "proto/base/status_macros.h"

namespace runnel {

absl::StatusOr<std::unique_ptr<LinkCodecs>> LinkCodecs::Create(const Plan& plan, int stage,
                                                               uint64_t run_seed) {
  auto codecs = std::make_unique<LinkCodecs>();
  const StagePlan& here = plan.stages[stage];
  Direction& down = codecs->at(false);
  Direction& up = codecs->at(true);
  down.boundary = here.last_layer;
  up.boundary = here.first_layer - 1;
  if (stage + 1 < static_cast<int>(plan.stages.size())) {
    RUNNEL_ASSIGN_OR_RETURN(down.sends, MakeCodec(plan.links[stage].codec_forward));
    RUNNEL_ASSIGN_OR_RETURN(up.receives, MakeCodec(plan.links[stage].codec_backward));
    down.encoder = down.sends->NewEncoder(
        {run_seed, RandomPurpose::kCodecForward, static_cast<uint64_t>(down.boundary)});
  }
  if (stage > 0) {
    RUNNEL_ASSIGN_OR_RETURN(up.sends, MakeCodec(plan.links[stage - 1].codec_backward));
    RUNNEL_ASSIGN_OR_RETURN(down.receives, MakeCodec(plan.links[stage - 1].codec_forward));
    up.encoder = up.sends->NewEncoder(
        {run_seed, RandomPurpose::kCodecBackward, static_cast<uint64_t>(up.boundary)});
  }
  return codecs;
}

absl::Status LinkCodecs::Encode(bool up, const TensorView& x, Sequence sequence, bool restart,
                                absl::Span<std::byte> payload) {
  return at(up).encoder->Encode(x, sequence, restart, payload);
}

absl::Status LinkCodecs::Decode(bool up, absl::Span<const std::byte> payload,
                                const MutableTensorView& out) const {
  return at(up).receives->Decode(payload, out);
}

int64_t LinkCodecs::EncodedBytes(bool sends, bool up, const Shape& shape) const {
  const auto& codec = sends ? at(up).sends : at(up).receives;
  return codec == nullptr ? 0 : codec->EncodedBytes(shape).value();
}

uint8_t LinkCodecs::Bits(bool up) const {
  const std::string name = at(up).sends == nullptr ? "" : at(up).sends->name();
  const size_t colon = name.find(':');
  int bits = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(name.substr(colon + 1), &bits)) return 32;
  return static_cast<uint8_t>(bits);
}

std::vector<EncoderState> LinkCodecs::SaveStates() const {
  std::vector<EncoderState> states;
  for (bool up : {false, true}) {
    const Direction& direction = at(up);
    if (direction.encoder == nullptr) continue;
    states.push_back(
        {direction.boundary, up, direction.sends->name(), direction.encoder->SaveState()});
  }
  return states;
}

absl::Status LinkCodecs::RestoreStates(const std::vector<EncoderState>& states) {
  for (const EncoderState& state : states) {
    Direction& direction = at(state.up);
    if (direction.encoder == nullptr || direction.boundary != state.boundary ||
        direction.sends->name() != state.codec) {
      continue;
    }
    RUNNEL_RETURN_IF_ERROR(direction.encoder->RestoreState(state.state));
  }
  return absl::OkStatus();
}

}  // namespace runnel
