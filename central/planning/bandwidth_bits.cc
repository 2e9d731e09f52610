#include "central/planning/bandwidth_bits.h"

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "compress/codec.h"
#include "compress/link_bits.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();
// A change that is charged that much less is made.
constexpr double kGain = 1e-4;
// So many of the pairs that all links may begin with are improved.
constexpr size_t kStarts = 3;

// Adds the link's codecs to `choices` if they are not there.
absl::Status AddChoice(const LinkPlan& link, int64_t epochs, const NumberFormat& format,
                       std::vector<CodecChoice>& choices) {
  const auto has = [&link](const CodecChoice& choice) {
    return choice.forward == link.codec_forward && choice.backward == link.codec_backward;
  };
  if (std::any_of(choices.begin(), choices.end(), has)) return absl::OkStatus();
  RUNNEL_ASSIGN_OR_RETURN(CodecChoice choice, MakeCodecChoice(link, epochs, format));
  choices.push_back(std::move(choice));
  return absl::OkStatus();
}

// The most exact first, as `runnel` wants them.
absl::StatusOr<std::vector<CodecChoice>> CodecPairsToTry(const BandwidthBits& bits,
                                                         const NumberFormat& format) {
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<BitsChoice> down,
                          BitsChoices(bits.family_forward, bits.exact));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<BitsChoice> up,
                          BitsChoices(bits.family_backward, bits.exact));
  const std::vector<BitStep> down_floors =
      MinBitsByEpoch(bits.switches, Direction::kForward, bits.epochs);
  const std::vector<BitStep> up_floors =
      MinBitsByEpoch(bits.switches, Direction::kBackward, bits.epochs);
  std::vector<CodecChoice> choices;
  const LinkPlan exact = {CodecSchedule(bits.exact), CodecSchedule(bits.exact)};
  RUNNEL_RETURN_IF_ERROR(AddChoice(exact, bits.epochs, format, choices));
  for (const auto& [forward, backward] : kBandwidthPairs) {
    const LinkPlan pair = {CodecsWithBits(down, forward, down_floors),
                           CodecsWithBits(up, backward, up_floors)};
    RUNNEL_RETURN_IF_ERROR(AddChoice(pair, bits.epochs, format, choices));
  }
  return choices;
}

// The choices of a direction: what the family has from `bits`, and the codecs that a plan has now.
std::vector<CodecSchedule> SchedulesToTry(const BandwidthBits& bits, Direction direction,
                                          absl::Span<const BitsChoice> choices, const Plan& plan) {
  const std::vector<BitStep> floors = MinBitsByEpoch(bits.switches, direction, bits.epochs);
  std::vector<CodecSchedule> schedules;
  const auto add = [&schedules](CodecSchedule one) {
    if (std::find(schedules.begin(), schedules.end(), one) == schedules.end())
      schedules.push_back(std::move(one));
  };
  for (const BitsChoice& choice : choices) add(CodecsWithBits(choices, choice.bits, floors));
  for (const LinkPlan& link : plan.links)
    add(direction == Direction::kForward ? link.codec_forward : link.codec_backward);
  return schedules;
}

// Chooses the codecs of a placement's links among pairs: number down * ups + up.
class CodecDescent {
 public:
  // must_fit: placements that do not fit the memory are charged infinitely.
  CodecDescent(const PipelineModel& model, bool must_fit, size_t downs, size_t ups)
      : model_(model), must_fit_(must_fit), downs_(downs), ups_(ups) {}

  // What the placement is charged, if that is below `bar`; else some number that is not.
  absl::StatusOr<double> Charge(const Placement& placement, double bar) const {
    if (must_fit_ && !FitsMemory(model_, placement)) return kForever;
    const double bound = ResourceBoundNs(ToPipeline(model_, placement)) * 1e-9;
    if (const double least = ChargedPeriod(model_, placement, bound); least >= bar) return least;
    RUNNEL_ASSIGN_OR_RETURN(const double period, SimulatedPeriod(model_, placement));
    return ChargedPeriod(model_, placement, period);
  }

  // Changes one direction of one link after the other as long as that gains.
  absl::Status Run(double& charged, Placement& placement) const {
    for (bool gained = true; std::exchange(gained, false);) {
      for (int& codec : placement.codecs) {
        for (size_t i = 0; i < downs_ + ups_; ++i) {
          const auto at = static_cast<size_t>(codec);
          const size_t down = i < downs_ ? i : at / ups_;
          const size_t up = i < downs_ ? at % ups_ : i - downs_;
          const int before = std::exchange(codec, static_cast<int>(down * ups_ + up));
          if (codec == before) continue;
          const double bar = charged * (1 - kGain);
          RUNNEL_ASSIGN_OR_RETURN(const double then, Charge(placement, bar));
          if (then < bar) {
            charged = then;
            gained = true;
          } else {
            codec = before;
          }
        }
      }
    }
    return absl::OkStatus();
  }

  // The best that is reached from `placement` and from the same pair on all links, for each pair of
  // about as exact codecs: one link alone gains nothing where another one is as slow.
  absl::StatusOr<Placement> Best(const Placement& placement) const {
    if (placement.codecs.empty()) return placement;
    std::vector<Placement> starts = {placement};
    for (size_t i = 0; i < std::max(downs_, ups_); ++i) {
      const size_t pair = std::min(i, downs_ - 1) * ups_ + std::min(i, ups_ - 1);
      starts.push_back(placement);
      starts.back().codecs.assign(placement.codecs.size(), static_cast<int>(pair));
    }
    std::vector<std::pair<double, size_t>> charges;
    for (size_t i = 0; i < starts.size(); ++i) {
      RUNNEL_ASSIGN_OR_RETURN(const double charged, Charge(starts[i], kForever));
      charges.emplace_back(charged, i);
    }
    std::sort(charges.begin(), charges.end());
    charges.resize(std::min(charges.size(), kStarts));
    for (auto& [charged, i] : charges) RUNNEL_RETURN_IF_ERROR(Run(charged, starts[i]));
    return starts[std::min_element(charges.begin(), charges.end())->second];
  }

 private:
  const PipelineModel& model_;
  const bool must_fit_;
  const size_t downs_;
  const size_t ups_;
};

// FitBits of a plan whose place in the request's pipeline model is known, but for its codecs.
absl::StatusOr<FittedPlan> FitPlacedPlan(const BandwidthBits& bits, PlanRequest request,
                                         PlacedPlan placed) {
  const auto schedules =
      [&](Direction direction,
          const std::string& family) -> absl::StatusOr<std::vector<CodecSchedule>> {
    RUNNEL_ASSIGN_OR_RETURN(const std::vector<BitsChoice> choices, BitsChoices(family, bits.exact));
    return SchedulesToTry(bits, direction, choices, placed.plan);
  };
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<CodecSchedule> downs,
                          schedules(Direction::kForward, bits.family_forward));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<CodecSchedule> ups,
                          schedules(Direction::kBackward, bits.family_backward));
  request.codec_choices.clear();
  for (const CodecSchedule& down : downs) {
    for (const CodecSchedule& up : ups) {
      RUNNEL_ASSIGN_OR_RETURN(request.codec_choices.emplace_back(),
                              MakeCodecChoice({down, up}, bits.epochs, request.format));
    }
  }
  request.codecs = request.codec_choices.front();
  request.noise_budget = bits.noise_budget;
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(request));
  const auto place_of = [](const std::vector<CodecSchedule>& in, const CodecSchedule& one) {
    return static_cast<size_t>(std::find(in.begin(), in.end(), one) - in.begin());
  };
  for (size_t i = 0; i < placed.plan.links.size(); ++i) {
    const LinkPlan& link = placed.plan.links[i];
    placed.placement.codecs[i] = static_cast<int>(place_of(downs, link.codec_forward) * ups.size() +
                                                  place_of(ups, link.codec_backward));
  }
  // Frames of more exact codecs take more memory.
  const CodecDescent descent(model, FitsMemory(model, placed.placement), downs.size(), ups.size());
  RUNNEL_ASSIGN_OR_RETURN(const Placement best, descent.Best(placed.placement));
  FittedPlan fitted;
  RUNNEL_ASSIGN_OR_RETURN(fitted.period_seconds, SimulatedPeriod(model, best));
  fitted.charged_seconds = ChargedPeriod(model, best, fitted.period_seconds);
  fitted.plan = std::move(placed.plan);
  for (size_t i = 0; i < best.codecs.size(); ++i) {
    const CodecCost& cost = model.codecs[static_cast<size_t>(best.codecs[i])];
    fitted.plan.links[i] = {cost.forward, cost.backward};
  }
  return fitted;
}

// The bits of the links' codecs that lose something, or names of those that have no bits.
std::string LossyBitsText(const Plan& plan, CodecSchedule LinkPlan::*codecs) {
  std::set<int> bits;
  std::set<std::string> names;
  for (const LinkPlan& link : plan.links) {
    for (const CodecStep& step : (link.*codecs).steps()) {
      const CodecRow* row = FindCodecFamily(step.codec.family);
      if (row == nullptr || row->lossless) continue;
      if (row->parameter.kind == ParameterRange::Kind::kInteger && row->bits != nullptr) {
        bits.insert(static_cast<int>(row->BitsOf(step.codec)));
      } else {
        names.insert(step.codec.text());
      }
    }
  }
  if (bits.size() == 1) names.insert(absl::StrCat(*bits.begin(), " bits"));
  if (bits.size() > 1) names.insert(absl::StrCat(*bits.begin(), " to ", *bits.rbegin(), " bits"));
  return absl::StrJoin(names, ", ");
}

}  // namespace

absl::StatusOr<CodecChoice> MakeCodecChoice(const LinkPlan& link, int64_t epochs,
                                            const NumberFormat& format) {
  CodecChoice choice{link.codec_forward, link.codec_backward, nullptr, nullptr};
  RUNNEL_ASSIGN_OR_RETURN(choice.forward_error,
                          MeanTensorError(choice.forward, Direction::kForward, epochs));
  RUNNEL_ASSIGN_OR_RETURN(choice.backward_error,
                          MeanTensorError(choice.backward, Direction::kBackward, epochs));
  for (const TensorError& error : {choice.forward_error, choice.backward_error})
    choice.lossy_directions += error.any() ? 1 : 0;
  RUNNEL_ASSIGN_OR_RETURN(choice.encoded_forward,
                          MeanEncodedBytes(choice.forward, epochs, format, Direction::kForward));
  RUNNEL_ASSIGN_OR_RETURN(choice.encoded_backward,
                          MeanEncodedBytes(choice.backward, epochs, format, Direction::kBackward));
  RUNNEL_ASSIGN_OR_RETURN(choice.forward_share,
                          MeanSizeShare(choice.forward, Direction::kForward, epochs));
  RUNNEL_ASSIGN_OR_RETURN(choice.backward_share,
                          MeanSizeShare(choice.backward, Direction::kBackward, epochs));
  RUNNEL_ASSIGN_OR_RETURN(choice.kept, MostKeptBytes(choice.forward));
  return choice;
}

std::string LossyCodecsText(const Plan& plan) {
  std::vector<std::string> ways;
  for (const auto& [codecs, way] : {std::pair(&LinkPlan::codec_forward, "forward"),
                                    std::pair(&LinkPlan::codec_backward, "back")}) {
    const std::string text = LossyBitsText(plan, codecs);
    if (!text.empty()) ways.push_back(absl::StrCat(text, " ", way));
  }
  return absl::StrJoin(ways, " and ");
}

std::string NoiseText(const Plan& plan, const std::vector<double>& noise_by_link) {
  double sum = 0;
  std::vector<std::string> shares;
  for (const double noise : noise_by_link) {
    sum += noise;
    shares.push_back(absl::StrFormat("%.2g", 100 * noise));
  }
  const std::string text = absl::StrFormat("%s add about %.2g %% to the gradients' noise",
                                           LossyCodecsText(plan), 100 * sum);
  if (std::set<std::string>(shares.begin(), shares.end()).size() < 2) return text;
  return absl::StrCat(text, " (by link ", absl::StrJoin(shares, ", "), ")");
}

Plan PlanInEpoch(Plan plan, int64_t epoch) {
  const auto only = [epoch](const CodecSchedule& codecs) {
    return CodecSchedule(codecs.steps()[codecs.StepIn(epoch)].codec);
  };
  for (LinkPlan& link : plan.links) link = {only(link.codec_forward), only(link.codec_backward)};
  return plan;
}

double NoiseByTable(const LinkPlan& link, Direction direction, int64_t epoch,
                    const NoiseWeights& weights) {
  const CodecSchedule& codecs =
      direction == Direction::kForward ? link.codec_forward : link.codec_backward;
  const CodecSchedule now(codecs.steps()[codecs.StepIn(epoch)].codec);
  return weights.Of(MeanTensorError(now, direction, 1).value_or(TensorError()));
}

double NoiseByTable(const Plan& plan, int64_t epoch, const NoisePlaces& places) {
  double noise = 0;
  for (size_t i = 0; i < plan.links.size(); ++i) {
    for (const Direction direction : kDirections)
      noise += NoiseByTable(plan.links[i], direction, epoch,
                            places.At(plan.stages[i].last_layer, direction));
  }
  return noise;
}

absl::Status AddCodecsOf(const Plan& plan, int64_t epochs, PlanRequest& request) {
  for (const LinkPlan& link : plan.links) {
    // The request's own have the sizes that it says: of codec `recipe` those of its levels.
    const bool is_own = link.codec_forward == request.codecs.forward &&
                        link.codec_backward == request.codecs.backward;
    if (is_own && request.codecs.encoded_forward && request.codecs.encoded_backward) continue;
    RUNNEL_RETURN_IF_ERROR(AddChoice(link, epochs, request.format, request.codec_choices));
  }
  return absl::OkStatus();
}

absl::StatusOr<FittedPlan> FitBits(const BandwidthBits& bits, const PlanRequest& request,
                                   const Plan& plan) {
  PlanRequest known = request;
  RUNNEL_RETURN_IF_ERROR(AddCodecsOf(plan, bits.epochs, known));
  RUNNEL_ASSIGN_OR_RETURN(const PipelineModel model, MakePipelineModel(known));
  RUNNEL_ASSIGN_OR_RETURN(Placement placement, PlacementOf(known, model, plan));
  return FitPlacedPlan(bits, std::move(known), {plan, std::move(placement)});
}

absl::StatusOr<FittedPlan> PlanWithBits(const BandwidthBits& bits, PlanRequest request) {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<CodecChoice> pairs, CodecPairsToTry(bits, request.format));
  request.noise_budget = bits.noise_budget;
  const auto plan_with = [&](const CodecChoice& own) -> absl::StatusOr<FittedPlan> {
    request.codecs = own;
    RUNNEL_ASSIGN_OR_RETURN(PlacedPlan placed, MakePlacedPlan(request));
    return FitPlacedPlan(bits, request, std::move(placed));
  };
  if (request.policy->chooses_devices) {
    request.codec_choices = pairs;
    return plan_with(pairs.front());
  }
  request.codec_choices.clear();
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan exact, plan_with(pairs.front()));
  if (!request.policy->needs_profile()) return exact;
  RUNNEL_ASSIGN_OR_RETURN(FittedPlan fewest, plan_with(pairs.back()));
  return fewest.charged_seconds < exact.charged_seconds ? fewest : exact;
}

}  // namespace runnel
