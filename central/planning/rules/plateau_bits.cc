#include "central/planning/rules/plateau_bits.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "proto/json/json_fields.h"
#include "proto/base/status_macros.h"
#include "proto/base/training/dials/gradient_bits.h"

namespace runnel {
namespace {

constexpr int64_t kMaxBarriers = 1'000'000;

}  // namespace

std::optional<ChangeTraining> PlateauBits::AtBarrier(const BarrierReport& report) {
  if (report.stages.empty()) return std::nullopt;
  if (report.plan.generation != generation_) loss_.Restart();
  generation_ = report.plan.generation;
  const double loss = loss_.Mean(report.stages.back().telemetry);
  return Look(loss, report.step);
}

std::optional<ChangeTraining> PlateauBits::Look(double loss, int64_t step) {
  Progress& now = progress_;
  if (!std::isfinite(loss)) return std::nullopt;
  if (!now.best_loss.has_value() || loss < *now.best_loss * (1 - options_.least_fall)) {
    now.best_loss = loss;
    now.without_fall = 0;
    return std::nullopt;
  }
  if (++now.without_fall < options_.barriers) return std::nullopt;
  now.without_fall = 0;
  const GradientBits lower{std::max(now.bits.conv - 1, options_.lowest),
                           std::max(now.bits.linear - 1, options_.lowest)};
  if (lower == now.bits) return std::nullopt;
  now.bits = lower;
  return ChangeTraining{
      ChangeOfGradientBits(step, lower),
      absl::StrFormat("the training loss %.4f has not fallen below %.4f for %d barriers", loss,
                      *now.best_loss, options_.barriers)};
}

std::string PlateauBits::State() const {
  Json json{{"bits", GradientBitsText({{0, progress_.bits}})},
            {"without_fall", progress_.without_fall}};
  if (progress_.best_loss.has_value()) json["best_loss"] = *progress_.best_loss;
  return DumpJson(json);
}

absl::Status PlateauBits::Restore(absl::string_view state) {
  RUNNEL_ASSIGN_OR_RETURN(const Json json, ParseJson(state));
  JsonObject object(json, "progress");
  std::string bits;
  Progress read;
  object.Read("bits", bits).Read("without_fall", read.without_fall);
  if (!object.NextKey().empty()) object.Read("best_loss", read.best_loss.emplace());
  RUNNEL_RETURN_IF_ERROR(object.Finish());
  RUNNEL_ASSIGN_OR_RETURN(read.bits, GradientBitsOfValue(bits));
  progress_ = read;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<TrainingRule>> MakePlateauBits(absl::string_view value,
                                                              absl::string_view arguments) {
  PlateauBitsOptions options;
  RUNNEL_ASSIGN_OR_RETURN(options.first, GradientBitsOfValue(value));
  const bool is_count = absl::SimpleAtoi(arguments, &options.barriers) && options.barriers >= 1 &&
                        options.barriers <= kMaxBarriers;
  if (!arguments.empty() && !is_count) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", arguments, "' is no number of barriers from 1 to ", kMaxBarriers,
                     "; give plateau:BITS or plateau:BITS:BARRIERS"));
  }
  return std::make_unique<PlateauBits>(options);
}

}  // namespace runnel
