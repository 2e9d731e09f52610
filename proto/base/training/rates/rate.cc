#include "proto/base/training/rates/rate.h"

#include "proto/base/status_macros.h"

namespace runnel {

namespace {

std::vector<ChoiceRow> Choices() {
  std::vector<ChoiceRow> rows;
  for (const Rate& rate : Rates()) rows.push_back(rate.choice);
  return rows;
}

}  // namespace

absl::Span<const Rate> Rates() {
  static const std::vector<Rate>& rates = *new std::vector<Rate>{
#define RUNNEL_RATE(Id) Id##Rate(),
#include "proto/base/training/rates/rates.inc"
#undef RUNNEL_RATE
  };
  return rates;
}

absl::StatusOr<RateChoice> ParseRate(absl::string_view text) {
  RUNNEL_ASSIGN_OR_RETURN(Choice choice, ParseChoice("rate", Choices(), text));
  return RateChoice{&Rates()[choice.row], std::move(choice.values)};
}

std::string RateHelp() { return ChoiceHelp(Choices()); }

double RunRate(const TrainingSettings& settings, int64_t epoch, int64_t step) {
  const absl::StatusOr<RateChoice> choice = ParseRate(settings.rate);
  if (!choice.ok()) return settings.learning_rate;  // CheckTraining refuses such settings
  return choice->rate->at(settings, choice->values, epoch, step);
}

}  // namespace runnel
