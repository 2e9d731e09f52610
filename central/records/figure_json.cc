#include "central/records/figure_json.h"

#include <string>

namespace runnel {
namespace {

FigureValue ValueOf(const Json& json) {
  return json.is_number_integer() ? FigureValue(json.get<int64_t>())
                                  : FigureValue(json.get<double>());
}

}  // namespace

void AddFigures(const std::vector<ShownFigure>& figures, bool for_page, Json& json) {
  for (const ShownFigure& figure : figures) {
    const FigureView& view = *figure.view;
    if (view.key == nullptr || (for_page && !view.on_page)) continue;
    if (view.at_zero == FigureAtZero::kLeftOut && figure.is_zero()) continue;
    FigureValue value = figure.value;
    // Rows with the same key: one figure.
    if (json.contains(view.key))
      value = Combined(figure.field->sum, ValueOf(json[view.key]), value);
    std::visit([&](auto number) { json[view.key] = number; }, value);
    if (figure.field->has_source)
      json["energy"] = std::string(Name(figure.telemetry->energy_source));
  }
}

}  // namespace runnel
