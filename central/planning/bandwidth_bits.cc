#include "central/planning/bandwidth_bits.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "compress/link_bits.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

// Periods within 0.5 % tie; the more exact codec wins. On a shared processor fewer bytes always
// save a little time, so that without a tie the fewest bits would win everywhere.
constexpr double kEqualPeriods = 5e-3;
// Budgets to try for one link direction, as shares of the slowest stage: with low caps a faster
// link shortens the round trip and so the period.
constexpr double kBudgetShares[] = {1, 1.0 / 2, 1.0 / 4, 1.0 / 8, 1.0 / 16};
constexpr double kForever = std::numeric_limits<double>::infinity();

// Bits forward and backward that `runnel` chooses among, link by link, together with the cut.
// Single directions are refitted afterwards.
constexpr std::pair<int, int> kPairs[] = {{8, 8}, {6, 6}, {5, 5}, {4, 4}, {3, 4}, {2, 4}};

absl::StatusOr<CodecChoice> MakeCodecChoice(const LinkPlan& link, int64_t epochs,
                                            const NumberFormat& format) {
  CodecChoice choice{link.codec_forward, link.codec_backward, nullptr, nullptr};
  RUNNEL_ASSIGN_OR_RETURN(choice.encoded_forward,
                          MeanEncodedBytes(choice.forward, epochs, format, Direction::kForward));
  RUNNEL_ASSIGN_OR_RETURN(choice.encoded_backward,
                          MeanEncodedBytes(choice.backward, epochs, format, Direction::kBackward));
  return choice;
}

// The position of the link's codecs in `choices`, where they are added if they are not there.
absl::StatusOr<int> AddChoice(const LinkPlan& link, int64_t epochs, const NumberFormat& format,
                              std::vector<CodecChoice>& choices) {
  const auto found =
      std::find_if(choices.begin(), choices.end(), [&link](const CodecChoice& choice) {
        return choice.forward == link.codec_forward && choice.backward == link.codec_backward;
      });
  const auto position = static_cast<int>(found - choices.begin());
  if (found != choices.end()) return position;
  RUNNEL_ASSIGN_OR_RETURN(CodecChoice choice, MakeCodecChoice(link, epochs, format));
  choices.push_back(std::move(choice));
  return position;
}

// The most exact first, as `runnel` wants them.
absl::StatusOr<std::vector<CodecChoice>> CodecPairsToTry(const BandwidthBits& bits,
                                                         const NumberFormat& format) {
  const Shape any = {1};  // names do not depend on it
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<BitsChoice> down,
                          BitsChoices(bits.family_forward, any, bits.exact));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<BitsChoice> up,
                          BitsChoices(bits.family_backward, any, bits.exact));
  const std::vector<BitStep> down_floors =
      MinBitsByEpoch(bits.switches, Direction::kForward, bits.epochs);
  const std::vector<BitStep> up_floors =
      MinBitsByEpoch(bits.switches, Direction::kBackward, bits.epochs);
  std::vector<CodecChoice> choices;
  const LinkPlan exact = {CodecSchedule(bits.exact), CodecSchedule(bits.exact)};
  RUNNEL_RETURN_IF_ERROR(AddChoice(exact, bits.epochs, format, choices).status());
  for (const auto& [forward, backward] : kPairs) {
    const LinkPlan pair = {CodecsWithBits(down, forward, down_floors),
                           CodecsWithBits(up, backward, up_floors)};
    RUNNEL_RETURN_IF_ERROR(AddChoice(pair, bits.epochs, format, choices).status());
  }
  return choices;
}

// The most exact codecs of each link whose frames cross within `available_seconds`, each direction
// apart.
absl::StatusOr<std::vector<LinkPlan>> MostExactCodecsInTime(const BandwidthBits& bits,
                                                            const PlanRequest& request,
                                                            const PipelineModel& model,
                                                            const Placement& placement,
                                                            double available_seconds) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<LayerInfo> infos,
                          InferShapes(*request.model, request.micro_batch_size));
  std::vector<LinkPlan> links;
  for (size_t i = 0; i + 1 < placement.order.size(); ++i) {
    const int from = placement.order[i];
    const int to = placement.order[i + 1];
    const Shape& shape = infos[placement.last_layer[i]].output;
    const double codec_seconds = static_cast<double>(model.raw_bytes[placement.last_layer[i]]) *
                                 std::max(model.devices[from].codec_seconds_per_byte,
                                          model.devices[to].codec_seconds_per_byte);
    const auto choose = [&](Direction direction) -> absl::StatusOr<CodecSchedule> {
      const bool forward = direction == Direction::kForward;
      RUNNEL_ASSIGN_OR_RETURN(
          const std::vector<BitsChoice> choices,
          BitsChoices(forward ? bits.family_forward : bits.family_backward, shape, bits.exact));
      const LinkSpeed& speed = forward ? model.speeds[from][to] : model.speeds[to][from];
      return CodecsInTime(choices, {speed.rate, available_seconds, codec_seconds},
                          MinBitsByEpoch(bits.switches, direction, bits.epochs));
    };
    LinkPlan& link = links.emplace_back();
    RUNNEL_ASSIGN_OR_RETURN(link.codec_forward, choose(Direction::kForward));
    RUNNEL_ASSIGN_OR_RETURN(link.codec_backward, choose(Direction::kBackward));
  }
  return links;
}

double SlowestStage(const PipelineModel& model, const Placement& placement) {
  double slowest = 0;
  for (const StageTimes& stage : ToPipeline(model, placement).stages)
    slowest = std::max(slowest, static_cast<double>(stage.total_ns()) * 1e-9);
  return slowest;
}

// Rates the plan by the request's pipeline model, which gets the codecs of its links.
absl::StatusOr<FittedPlan> RatePlan(const BandwidthBits& bits, PlanRequest request,
                                    PlacedPlan placed) {
  FittedPlan fitted;
  for (size_t i = 0; i < placed.plan.links.size(); ++i) {
    RUNNEL_ASSIGN_OR_RETURN(
        placed.placement.codecs[i],
        AddChoice(placed.plan.links[i], bits.epochs, request.format, request.codec_choices));
  }
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
  RUNNEL_ASSIGN_OR_RETURN(fitted.period_seconds, SimulatedPeriod(model, placed.placement));
  fitted.charged_seconds = ChargedPeriod(model, placed.placement, fitted.period_seconds);
  fitted.fits_memory = FitsMemory(model, placed.placement);
  RUNNEL_ASSIGN_OR_RETURN(fitted.coding_error, CodingError(placed.plan, bits.epochs));
  fitted.plan = std::move(placed.plan);
  return fitted;
}

// FitBits of a plan whose place in `model`, the request's pipeline model, is known.
absl::StatusOr<FittedPlan> FitPlacedPlan(const BandwidthBits& bits, const PlanRequest& request,
                                         const PipelineModel& model, const PlacedPlan& placed) {
  std::vector<FittedPlan> fitted;
  RUNNEL_ASSIGN_OR_RETURN(fitted.emplace_back(), RatePlan(bits, request, placed));
  if (placed.plan.links.empty()) return fitted.front();
  const auto try_with = [&](double available_seconds) -> absl::Status {
    PlacedPlan other = placed;
    RUNNEL_ASSIGN_OR_RETURN(
        other.plan.links,
        MostExactCodecsInTime(bits, request, model, placed.placement, available_seconds));
    RUNNEL_ASSIGN_OR_RETURN(fitted.emplace_back(), RatePlan(bits, request, std::move(other)));
    return absl::OkStatus();
  };
  RUNNEL_RETURN_IF_ERROR(try_with(kForever));
  RUNNEL_RETURN_IF_ERROR(try_with(0));
  const double slowest = SlowestStage(model, placed.placement);
  for (double share : kBudgetShares) RUNNEL_RETURN_IF_ERROR(try_with(share * slowest));
  // Frames of more exact codecs take more memory.
  const bool fits = fitted.front().fits_memory;
  std::erase_if(fitted, [fits](const FittedPlan& one) { return fits && !one.fits_memory; });
  double least = kForever;
  for (const FittedPlan& one : fitted) least = std::min(least, one.period_seconds);
  std::erase_if(fitted, [least](const FittedPlan& one) {
    return one.period_seconds > least * (1 + kEqualPeriods);
  });
  return *std::min_element(fitted.begin(), fitted.end(),
                           [](const FittedPlan& a, const FittedPlan& b) {
                             return std::pair(a.coding_error, a.period_seconds) <
                                    std::pair(b.coding_error, b.period_seconds);
                           });
}

}  // namespace

absl::StatusOr<double> CodingError(const Plan& plan, int64_t epochs) {
  double sum = 0;
  for (const LinkPlan& link : plan.links) {
    RUNNEL_ASSIGN_OR_RETURN(const double forward, MeanRelativeError(link.codec_forward, epochs));
    RUNNEL_ASSIGN_OR_RETURN(const double backward, MeanRelativeError(link.codec_backward, epochs));
    sum += forward + backward;
  }
  return plan.links.empty() ? 0 : sum / (2 * static_cast<double>(plan.links.size()));
}

absl::Status AddCodecsOf(const Plan& plan, int64_t epochs, PlanRequest& request) {
  for (const LinkPlan& link : plan.links) {
    RUNNEL_RETURN_IF_ERROR(AddChoice(link, epochs, request.format, request.codec_choices).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<FittedPlan> FitBits(const BandwidthBits& bits, const PlanRequest& request,
                                   const Plan& plan) {
  PlanRequest known = request;
  RUNNEL_RETURN_IF_ERROR(AddCodecsOf(plan, bits.epochs, known));
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(known));
  RUNNEL_ASSIGN_OR_RETURN(Placement placement, PlacementOf(known, model, plan));
  return FitPlacedPlan(bits, known, model, {plan, std::move(placement)});
}

absl::StatusOr<FittedPlan> PlanWithBits(const BandwidthBits& bits, PlanRequest request) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<CodecChoice> pairs, CodecPairsToTry(bits, request.format));
  const auto plan_with = [&](const CodecChoice& own) -> absl::StatusOr<FittedPlan> {
    request.codec_forward = own.forward;
    request.codec_backward = own.backward;
    request.encoded_forward = own.encoded_forward;
    request.encoded_backward = own.encoded_backward;
    RUNNEL_ASSIGN_OR_RETURN(const PlacedPlan placed, MakePlacedPlan(request));
    RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
    return FitPlacedPlan(bits, request, model, placed);
  };
  if (request.policy->chooses_devices) {
    request.codec_choices = pairs;
    return plan_with(pairs.front());
  }
  request.codec_choices.clear();
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan exact, plan_with(pairs.front()));
  if (!request.policy->needs_profile()) return exact;
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan fewest, plan_with(pairs.back()));
  return fewest.charged_seconds < exact.charged_seconds * (1 - kEqualPeriods) ? fewest : exact;
}

}  // namespace runnel
