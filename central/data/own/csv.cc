// Tables of numbers and categories: a line a sample, a column a feature, one column the class.

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "central/data/data_files.h"
#include "central/data/loaders.h"
#include "central/data/own/place.h"
#include "central/data/own/split.h"
#include "central/data/own/table_file.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

constexpr absl::string_view kUsage = "csv:FILE[,label=COLUMN][,skip=COLUMN;COLUMN...]";
constexpr size_t kMaxCategories = 256;  // of one column
constexpr int64_t kMaxFeatures = 1 << 20;
// A column with more numbers than this, and so many for each text, holds numbers.
constexpr size_t kMostNumberedCategories = 20, kNumbersOfStray = 10;
// More classes than this are no numbers with fractions.
constexpr size_t kMostFractions = 20;
// A column of this name is the class unless the user names another one; else the last is.
constexpr absl::string_view kLabelNames[] = {"label", "class", "target", "species", "y"};

absl::StatusOr<size_t> FindColumn(const TableFile& table, absl::string_view name) {
  const auto found = std::find(table.columns.begin(), table.columns.end(), name);
  if (found != table.columns.end()) return static_cast<size_t>(found - table.columns.begin());
  return absl::InvalidArgumentError(Printable(absl::StrCat(
      table.path, ": has no column '", name, "'; it has ", absl::StrJoin(table.columns, ", "))));
}

absl::StatusOr<size_t> LabelColumn(const TableFile& table, const std::string& given) {
  if (!given.empty()) return FindColumn(table, given);
  for (const absl::string_view name : kLabelNames) {
    const auto is_it = [name](const std::string& c) { return absl::EqualsIgnoreCase(c, name); };
    const auto found = std::find_if(table.columns.begin(), table.columns.end(), is_it);
    if (found != table.columns.end()) return static_cast<size_t>(found - table.columns.begin());
  }
  return table.columns.size() - 1;
}

// Numbers, or texts: a category each. Few texts among many numbers are no categories.
absl::StatusOr<TableColumn> MakeColumn(const TableFile& table, size_t index) {
  RUNNEL_RETURN_IF_ERROR(table.CheckCommas(index));
  TableColumn column{table.columns[index], {}};
  std::set<std::string> numbers, texts;
  size_t first_text = table.rows.size();
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const std::string& text = table.rows[r][index];
    double value = 0;
    if (IsMissing(text)) continue;
    const bool is_number = absl::SimpleAtod(text, &value);
    if (is_number && !IsTableNumber(text, &value)) {
      return table.Wrong(
          table.lines[r],
          absl::StrCat("column '", column.name, "' is ", text,
                       std::isfinite(value) ? ", more than FP32 holds" : ", which is not finite"));
    }
    if (!is_number) first_text = std::min(first_text, r);
    std::set<std::string>& found = is_number ? numbers : texts;
    if (found.size() <= kMaxCategories) found.insert(text);
  }
  if (texts.empty()) return column;
  const bool are_too_many = texts.size() + numbers.size() > kMaxCategories;
  const bool are_strays =
      numbers.size() > kMostNumberedCategories && numbers.size() >= kNumbersOfStray * texts.size();
  if (are_too_many || are_strays) {
    return table.Wrong(
        table.lines[first_text],
        absl::StrCat("column '", column.name, "' holds '",
                     table.rows[first_text][index].substr(0, 40), "', which is no number, and ",
                     are_strays ? absl::StrCat("more than ", kMostNumberedCategories, " numbers")
                                : absl::StrCat("more than ", kMaxCategories, " different texts"),
                     "; mend it, empty the field if nothing is known, or leave the column out with "
                     "skip=",
                     column.name));
  }
  texts.merge(numbers);
  column.categories.assign(texts.begin(), texts.end());
  return column;
}

// Fills the column's features of one sample; a number that is missing is NaN until it is scaled.
void Fill(const TableColumn& column, const std::string& text, double* out) {
  if (column.categories.empty()) {
    *out = std::numeric_limits<double>::quiet_NaN();
    if (!IsMissing(text)) (void)absl::SimpleAtod(text, out);
    return;
  }
  for (size_t i = 0; i < column.categories.size(); ++i) out[i] = column.categories[i] == text;
}

// How a line of a table becomes the features of a sample.
struct TableForm {
  std::vector<TableColumn> columns;
  int64_t features = 0;
  std::vector<ChannelScale> scales;  // by feature

  // (x - mean) / deviation; what is missing becomes the mean.
  std::vector<float> Scale(const std::vector<double>& values) const {
    std::vector<float> scaled(values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      const ChannelScale& scale = scales[i % static_cast<size_t>(features)];
      const double value = (values[i] - scale.mean) / scale.deviation;
      scaled[i] = std::isnan(value) ? 0 : static_cast<float>(value);
    }
    return scaled;
  }
};

class TableDataset final : public Dataset {
 public:
  // path, lines: where each sample stands.
  TableDataset(TableForm form, Classes classes, std::vector<float> values, std::string path,
               std::vector<size_t> lines)
      : shape_({form.features}),
        form_(std::move(form)),
        classes_(std::move(classes)),
        values_(std::move(values)),
        path_(std::move(path)),
        lines_(std::move(lines)) {}

  int64_t size() const override { return std::ssize(classes_.labels); }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return std::ssize(classes_.names); }
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::copy_n(values_.begin() + index * shape_[0], shape_[0], out.begin());
  }
  int32_t label(int64_t index) const override {
    return classes_.labels[static_cast<size_t>(index)];
  }
  std::string class_name(int64_t label) const override {
    return classes_.names[static_cast<size_t>(label)];
  }
  std::string sample_name(int64_t index) const override {
    return absl::StrCat(path_, ":", lines_[static_cast<size_t>(index)]);
  }
  DataDescription Describe() const override {
    return {.kind = "csv",
            .sample = shape_,
            .classes = classes_.names,
            .scales = form_.scales,
            .columns = form_.columns};
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Unlabelled(const std::string& path) const override;

 private:
  Shape shape_;
  TableForm form_;
  Classes classes_;
  std::vector<float> values_;
  std::string path_;
  std::vector<size_t> lines_;
};

// The features of a table, and by feature's column its place in the file.
struct Columns {
  std::vector<TableColumn> columns;
  std::vector<size_t> places;
  int64_t features = 0;
};

absl::StatusOr<Columns> FeatureColumns(const TableFile& table, size_t label,
                                       const std::string& skip) {
  std::set<size_t> left_out = {label};
  for (absl::string_view name : absl::StrSplit(skip, ';', absl::SkipEmpty())) {
    RUNNEL_ASSIGN_OR_RETURN(const size_t column, FindColumn(table, name));
    left_out.insert(column);
  }
  Columns found;
  for (size_t i = 0; i < table.columns.size(); ++i) {
    if (left_out.count(i) > 0) continue;
    RUNNEL_ASSIGN_OR_RETURN(found.columns.emplace_back(), MakeColumn(table, i));
    found.places.push_back(i);
    found.features += found.columns.back().features();
  }
  if (found.features == 0 || found.features > kMaxFeatures) {
    return absl::InvalidArgumentError(absl::StrCat(table.path, ": ", found.features,
                                                   " features; 1 to ", kMaxFeatures, " can be"));
  }
  return found;
}

// InvalidArgument: the classes are the values of something that was measured.
absl::Status CheckNoMeasure(const TableFile& table, size_t label,
                            absl::Span<const std::string> classes) {
  if (classes.size() <= kMostFractions) return absl::OkStatus();
  const auto has_fraction = [](const std::string& name) {
    double value = 0;
    return absl::SimpleAtod(name, &value) && value != std::floor(value);
  };
  const auto found = std::find_if(classes.begin(), classes.end(), has_fraction);
  if (found == classes.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Printable(absl::StrCat(table.path, ": column '", table.columns[label], "' holds ", *found,
                             ", one of ", classes.size(),
                             " values; classes are texts or whole numbers, of which each has "
                             "several samples: label=COLUMN names the column of the classes")));
}

absl::StatusOr<Classes> TableClasses(const TableFile& table, size_t label) {
  std::vector<std::string> labels;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    labels.push_back(table.rows[r][label]);
    if (IsMissing(labels.back())) {
      return table.Wrong(table.lines[r], absl::StrCat("the class (column '", table.columns[label],
                                                      "') is missing"));
    }
  }
  RUNNEL_ASSIGN_OR_RETURN(Classes classes,
                          ClassesOf(labels, Printable(absl::StrCat(table.path, ": column '",
                                                                   table.columns[label], "'"))));
  RUNNEL_RETURN_IF_ERROR(CheckNoMeasure(table, label, classes.names));
  return classes;
}

// The columns of `form` in a table of samples without classes; a table without names has them in the
// same places. A text where the training had numbers is an error, one that it had not is none of its
// categories.
absl::StatusOr<std::vector<float>> ValuesOf(const TableFile& table, const TableForm& form) {
  std::vector<double> values(table.rows.size() * static_cast<size_t>(form.features));
  std::vector<size_t> at;
  for (const TableColumn& column : form.columns) {
    RUNNEL_ASSIGN_OR_RETURN(at.emplace_back(), FindColumn(table, column.name));
    RUNNEL_RETURN_IF_ERROR(table.CheckCommas(at.back()));
  }
  double* out = values.data();
  for (size_t r = 0; r < table.rows.size(); ++r) {
    for (size_t c = 0; c < form.columns.size(); ++c) {
      const TableColumn& column = form.columns[c];
      const std::string& text = table.rows[r][at[c]];
      double value = 0;
      if (column.categories.empty() && !IsMissing(text) && !IsTableNumber(text, &value)) {
        return table.Wrong(table.lines[r],
                           absl::StrCat("column '", column.name, "' holds '", text.substr(0, 40),
                                        "', which is no number"));
      }
      Fill(column, text, out);
      out += column.features();
    }
  }
  return form.Scale(values);
}

absl::StatusOr<std::unique_ptr<Dataset>> TableDataset::Unlabelled(const std::string& path) const {
  RUNNEL_ASSIGN_OR_RETURN(TableFile table, ReadTableFile(path));
  RUNNEL_ASSIGN_OR_RETURN(std::vector<float> values, ValuesOf(table, form_));
  Classes classes{classes_.names, std::vector<int32_t>(table.rows.size())};
  return std::make_unique<TableDataset>(form_, std::move(classes), std::move(values), path,
                                        std::move(table.lines));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadCsv(absl::string_view text, uint64_t seed) {
  RUNNEL_ASSIGN_OR_RETURN(const Place place, ParsePlace(text, 1, {"label", "skip"}, kUsage));
  RUNNEL_ASSIGN_OR_RETURN(TableFile table, ReadTableFile(place.paths[0]));
  RUNNEL_ASSIGN_OR_RETURN(const size_t label, LabelColumn(table, place.Option("label")));
  RUNNEL_ASSIGN_OR_RETURN(Columns found, FeatureColumns(table, label, place.Option("skip")));
  RUNNEL_ASSIGN_OR_RETURN(Classes classes, TableClasses(table, label));
  const int64_t features = found.features;
  TableForm form{std::move(found.columns), features, {}};
  std::vector<double> values(table.rows.size() * static_cast<size_t>(features));
  double* out = values.data();
  for (const TableRow& row : table.rows) {
    for (size_t c = 0; c < form.columns.size(); ++c) {
      Fill(form.columns[c], row[found.places[c]], out);
      out += form.columns[c].features();
    }
  }
  SplitIndices split = SplitByClass(classes.labels, std::ssize(classes.names), seed);
  const auto read = [&](int64_t index, absl::Span<double> sample) {
    std::copy_n(values.begin() + index * features, features, sample.begin());
    return absl::OkStatus();
  };
  RUNNEL_ASSIGN_OR_RETURN(form.scales, MeasureScales(split.train, features, 1, read));
  std::vector<float> scaled = form.Scale(values);
  return SplitsOf(
      std::make_shared<TableDataset>(std::move(form), std::move(classes), std::move(scaled),
                                     std::move(table.path), std::move(table.lines)),
      std::move(split));
}

absl::StatusOr<std::unique_ptr<Dataset>> DescribedCsv(const DataDescription& description) {
  if (description.columns.empty())
    return absl::InvalidArgumentError("the data's description: a table without columns");
  TableForm form{description.columns, description.sample[0], description.scales};
  return std::make_unique<TableDataset>(std::move(form), Classes{description.classes, {}},
                                        std::vector<float>(), "", std::vector<size_t>());
}

}  // namespace runnel::data
