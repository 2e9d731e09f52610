#include "proto/base/training/choice.h"

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

// "adamw[:BETA1,BETA2]".
std::string FormOf(const ChoiceRow& row) {
  std::string form(row.name);
  for (size_t i = 0; i < row.parameters().size(); ++i)
    absl::StrAppend(&form, i == 0 ? "[:" : ",", row.parameters()[i].name);
  return row.parameters().empty() ? form : form + "]";
}

absl::StatusOr<std::vector<double>> ParseValues(const ChoiceRow& row, absl::string_view text) {
  std::vector<double> values;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    if (values.size() == row.parameters().size())
      return absl::InvalidArgumentError(absl::StrCat("does not fit ", FormOf(row)));
    const ChoiceParameter& parameter = row.parameters()[values.size()];
    double value = 0;
    if (!absl::SimpleAtod(part, &value))
      return absl::InvalidArgumentError(
          absl::StrCat("'", absl::CHexEscape(part), "' is no number"));
    if (const absl::Status status = CheckSetting(parameter.range, value); !status.ok())
      return absl::InvalidArgumentError(absl::StrCat(parameter.name, " ", status.message()));
    values.push_back(value);
  }
  return values;
}

}  // namespace

absl::StatusOr<Choice> ParseChoice(absl::string_view what, absl::Span<const ChoiceRow> rows,
                                   absl::string_view text) {
  const std::string shown = absl::CHexEscape(text);
  const size_t colon = text.find(':');
  std::vector<std::string> known;
  for (size_t i = 0; i < rows.size(); ++i) {
    known.push_back(FormOf(rows[i]));
    if (rows[i].name != text.substr(0, colon)) continue;
    Choice choice = {i, {}};
    if (colon != absl::string_view::npos) {
      absl::StatusOr<std::vector<double>> values = ParseValues(rows[i], text.substr(colon + 1));
      if (!values.ok()) {
        return absl::InvalidArgumentError(
            absl::StrCat(what, " '", shown, "': ", values.status().message()));
      }
      choice.values = *std::move(values);
    }
    for (const ChoiceParameter& left : rows[i].parameters().subspan(choice.values.size()))
      choice.values.push_back(left.fallback);
    return choice;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(what, " '", shown, "' is not known; there is ", absl::StrJoin(known, ", ")));
}

std::string ChoiceHelp(absl::Span<const ChoiceRow> rows) {
  return absl::StrJoin(rows, ", ", [](std::string* out, const ChoiceRow& row) {
    absl::StrAppend(out, FormOf(row), " (", row.summary, ")");
  });
}

}  // namespace runnel
