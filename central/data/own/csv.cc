// Tables of numbers and categories: a line a sample, a column a feature, one column the class.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
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
  const TableRow& columns = table.columns();
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found != columns.end()) return static_cast<size_t>(found - columns.begin());
  return absl::InvalidArgumentError(Printable(absl::StrCat(
      table.path(), ": has no column '", name, "'; it has ", absl::StrJoin(columns, ", "))));
}

absl::StatusOr<size_t> LabelColumn(const TableFile& table, const std::string& given) {
  if (!given.empty()) return FindColumn(table, given);
  for (const absl::string_view name : kLabelNames) {
    const auto is_it = [name](const std::string& c) { return absl::EqualsIgnoreCase(c, name); };
    const auto found = std::find_if(table.columns().begin(), table.columns().end(), is_it);
    if (found != table.columns().end()) return static_cast<size_t>(found - table.columns().begin());
  }
  return table.columns().size() - 1;
}

// What a column holds, in any number of rows.
struct ColumnFacts {
  struct Field {
    size_t line = 0;  // 0: there is none
    std::string text;
  };

  std::set<std::string> numbers, texts;  // up to one more than kMaxCategories
  Field first_text;
  Field beyond;  // the first number that FP32 does not hold

  void Add(const std::string& text, size_t line) {
    double value = 0;
    if (IsMissing(text)) return;
    const bool is_number = absl::SimpleAtod(text, &value);
    if (is_number && beyond.line == 0 && !IsTableNumber(text, &value)) beyond = {line, text};
    if (!is_number && first_text.line == 0) first_text = {line, text};
    std::set<std::string>& found = is_number ? numbers : texts;
    if (found.size() <= kMaxCategories) found.insert(text);
  }
};

// Numbers, or texts: a category each. Few texts among many numbers are no categories.
absl::StatusOr<TableColumn> MakeColumn(const TableFile& table, size_t index, ColumnFacts facts) {
  RUNNEL_RETURN_IF_ERROR(table.CheckCommas(index));
  TableColumn column{table.columns()[index], {}};
  auto& [numbers, texts, first_text, beyond] = facts;
  if (beyond.line > 0) {
    double value = 0;
    (void)absl::SimpleAtod(beyond.text, &value);
    return table.Wrong(beyond.line, absl::StrCat("column '", column.name, "' is ", beyond.text,
                                                 std::isfinite(value) ? ", more than FP32 holds"
                                                                      : ", which is not finite"));
  }
  if (texts.empty()) return column;
  const bool are_too_many = texts.size() + numbers.size() > kMaxCategories;
  const bool are_strays =
      numbers.size() > kMostNumberedCategories && numbers.size() >= kNumbersOfStray * texts.size();
  if (are_too_many || are_strays) {
    return table.Wrong(
        first_text.line,
        absl::StrCat("column '", column.name, "' holds '", first_text.text.substr(0, 40),
                     "', which is no number, and ",
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
  std::vector<size_t> places = {};  // by column: where it stands in the file
  int64_t features = 0;
  std::vector<ChannelScale> scales = {};  // by feature

  void Fill(const TableRow& fields, absl::Span<double> out) const {
    double* next = out.data();
    for (size_t c = 0; c < columns.size(); ++c) {
      data::Fill(columns[c], fields[places[c]], next);
      next += columns[c].features();
    }
  }
  // (x - mean) / deviation; what is missing becomes the mean.
  void Scale(absl::Span<const double> values, absl::Span<float> out) const {
    for (size_t i = 0; i < values.size(); ++i) {
      const double value = (values[i] - scales[i].mean) / scales[i].deviation;
      out[i] = std::isnan(value) ? 0 : static_cast<float>(value);
    }
  }
};

class TableDataset final : public Dataset {
 public:
  // table: null without samples.
  TableDataset(TableForm form, Classes classes, std::unique_ptr<TableFile> table)
      : shape_({form.features}),
        form_(std::move(form)),
        classes_(std::move(classes)),
        table_(std::move(table)) {}

  // Keeps the samples, if they are not too many. check: OK for lines that may be samples. Errors as
  // TableFile::ForEach.
  absl::Status Read(absl::FunctionRef<absl::Status(int64_t row, const TableRow& fields)> check) {
    const bool are_kept = size() * shape_[0] <= kMostKept;
    std::vector<double> values(static_cast<size_t>(shape_[0]));
    if (are_kept) kept_.resize(static_cast<size_t>(size() * shape_[0]));
    return table_->ForEach([&](int64_t row, const TableRow& fields) -> absl::Status {
      RUNNEL_RETURN_IF_ERROR(check(row, fields));
      if (!are_kept) return absl::OkStatus();
      form_.Fill(fields, absl::MakeSpan(values));
      form_.Scale(values, absl::MakeSpan(kept_).subspan(row * shape_[0], shape_[0]));
      return absl::OkStatus();
    });
  }

  int64_t size() const override { return std::ssize(classes_.labels); }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return std::ssize(classes_.names); }
  bool reads_files() const override { return kept_.empty() && size() > 0; }
  // A sample that cannot be read any more is the mean: 0.
  void CopySample(int64_t index, absl::Span<float> out) const override {
    if (!kept_.empty()) {
      std::copy_n(kept_.begin() + index * shape_[0], shape_[0], out.begin());
      return;
    }
    std::vector<double> values(out.size());
    const absl::StatusOr<TableRow> fields = table_->Read(index);
    if (!fields.ok()) return std::fill(out.begin(), out.end(), 0.0f);
    form_.Fill(*fields, absl::MakeSpan(values));
    form_.Scale(values, out);
  }
  int32_t label(int64_t index) const override {
    return classes_.labels[static_cast<size_t>(index)];
  }
  std::string class_name(int64_t label) const override {
    return classes_.names[static_cast<size_t>(label)];
  }
  std::string sample_name(int64_t index) const override {
    return absl::StrCat(table_->path(), ":", table_->line(index));
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
  // Features of all samples; more are read one by one.
  static constexpr int64_t kMostKept = int64_t{48} << 20;

  Shape shape_;
  TableForm form_;
  Classes classes_;
  std::unique_ptr<TableFile> table_;
  std::vector<float> kept_;
};

// The columns that are features, without their scales.
absl::StatusOr<TableForm> FeatureColumns(const TableFile& table, const std::set<size_t>& left_out,
                                         std::vector<ColumnFacts> facts) {
  TableForm form;
  for (size_t i = 0; i < table.columns().size(); ++i) {
    if (left_out.count(i) > 0) continue;
    RUNNEL_ASSIGN_OR_RETURN(form.columns.emplace_back(), MakeColumn(table, i, std::move(facts[i])));
    form.places.push_back(i);
    form.features += form.columns.back().features();
  }
  if (form.features == 0 || form.features > kMaxFeatures) {
    return absl::InvalidArgumentError(absl::StrCat(table.path(), ": ", form.features,
                                                   " features; 1 to ", kMaxFeatures, " can be"));
  }
  return form;
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
      Printable(absl::StrCat(table.path(), ": column '", table.columns()[label], "' holds ", *found,
                             ", one of ", classes.size(),
                             " values; classes are texts or whole numbers, of which each has "
                             "several samples: label=COLUMN names the column of the classes")));
}

// The column of the classes: its texts, and by row the number of one.
struct LabelTexts {
  std::vector<std::string> texts;
  std::vector<int32_t> rows;
  size_t missing_line = 0;  // the first without one; 0: there is none
  std::map<std::string, int32_t> numbers = {};

  void Add(const std::string& text, size_t line) {
    if (IsMissing(text) && missing_line == 0) missing_line = line;
    const auto [found, is_new] = numbers.emplace(text, static_cast<int32_t>(texts.size()));
    if (is_new) texts.push_back(text);
    rows.push_back(found->second);
  }
};

absl::StatusOr<Classes> TableClasses(const TableFile& table, size_t label, LabelTexts labels) {
  const std::string column = absl::StrCat("column '", table.columns()[label], "'");
  if (labels.missing_line > 0)
    return table.Wrong(labels.missing_line, absl::StrCat("the class (", column, ") is missing"));
  RUNNEL_ASSIGN_OR_RETURN(
      Classes classes,
      ClassesOf(labels.texts, Printable(absl::StrCat(table.path(), ": ", column))));
  RUNNEL_RETURN_IF_ERROR(CheckNoMeasure(table, label, classes.names));
  for (int32_t& row : labels.rows) row = classes.labels[static_cast<size_t>(row)];
  classes.labels = std::move(labels.rows);
  return classes;
}

// The columns of the form in a table of samples without classes; a table without names has them in
// the same places. A text where the training had numbers is an error, one that it had not is none of
// its categories.
absl::StatusOr<std::unique_ptr<Dataset>> TableDataset::Unlabelled(const std::string& path) const {
  RUNNEL_ASSIGN_OR_RETURN(std::unique_ptr<TableFile> owned, TableFile::Open(path));
  const TableFile& table = *owned;
  TableForm form = form_;
  form.places.clear();
  for (const TableColumn& column : form.columns) {
    RUNNEL_ASSIGN_OR_RETURN(form.places.emplace_back(), FindColumn(table, column.name));
    RUNNEL_RETURN_IF_ERROR(table.CheckCommas(form.places.back()));
  }
  const auto check = [&](int64_t row, const TableRow& fields) -> absl::Status {
    for (size_t c = 0; c < form_.columns.size(); ++c) {
      const TableColumn& column = form_.columns[c];
      const std::string& text = fields[form.places[c]];
      double value = 0;
      if (!column.categories.empty() || IsMissing(text) || IsTableNumber(text, &value)) continue;
      return table.Wrong(table.line(row),
                         absl::StrCat("column '", column.name, "' holds '", text.substr(0, 40),
                                      "', which is no number"));
    }
    return absl::OkStatus();
  };
  Classes classes{classes_.names, std::vector<int32_t>(static_cast<size_t>(table.rows()))};
  auto samples = std::make_unique<TableDataset>(form, std::move(classes), std::move(owned));
  RUNNEL_RETURN_IF_ERROR(samples->Read(check));
  return samples;
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadCsv(const LoadRequest& request) {
  // The file is read for its records, for what its columns hold, and for the samples.
  constexpr double kReadings = 3;
  RUNNEL_ASSIGN_OR_RETURN(const Place place,
                          ParsePlace(request.place, 1, {"label", "skip"}, kUsage));
  RUNNEL_ASSIGN_OR_RETURN(
      std::unique_ptr<TableFile> owned,
      TableFile::Open(place.paths[0], [&](double share) { request.Tell(share / kReadings); }));
  const TableFile& table = *owned;
  RUNNEL_ASSIGN_OR_RETURN(const size_t label, LabelColumn(table, place.Option("label")));
  std::set<size_t> left_out = {label};
  for (const absl::string_view name :
       absl::StrSplit(place.Option("skip"), ';', absl::SkipEmpty())) {
    RUNNEL_ASSIGN_OR_RETURN(const size_t column, FindColumn(table, name));
    left_out.insert(column);
  }
  const auto tell_row = [&](double readings, int64_t row) {
    request.Tell((readings + static_cast<double>(row) / static_cast<double>(table.rows())) /
                 kReadings);
  };
  std::vector<ColumnFacts> facts(table.columns().size());
  LabelTexts labels;
  RUNNEL_RETURN_IF_ERROR(table.ForEach([&](int64_t row, const TableRow& fields) {
    for (size_t i = 0; i < fields.size(); ++i) {
      if (left_out.count(i) == 0) facts[i].Add(fields[i], table.line(row));
    }
    labels.Add(fields[label], table.line(row));
    tell_row(1, row);
    return absl::OkStatus();
  }));
  RUNNEL_ASSIGN_OR_RETURN(TableForm form, FeatureColumns(table, left_out, std::move(facts)));
  RUNNEL_ASSIGN_OR_RETURN(Classes classes, TableClasses(table, label, std::move(labels)));
  SplitIndices split = SplitByClass(classes.labels, std::ssize(classes.names), request.seed);
  const auto read = [&](int64_t index, absl::Span<double> sample) -> absl::Status {
    RUNNEL_ASSIGN_OR_RETURN(const TableRow fields, table.Read(index));
    form.Fill(fields, sample);
    return absl::OkStatus();
  };
  RUNNEL_ASSIGN_OR_RETURN(form.scales, MeasureScales(split.train, form.features, 1, read));
  auto all = std::make_shared<TableDataset>(std::move(form), std::move(classes), std::move(owned));
  RUNNEL_RETURN_IF_ERROR(all->Read([&](int64_t row, const TableRow&) {
    tell_row(2, row);
    return absl::OkStatus();
  }));
  return SplitsOf(std::move(all), std::move(split));
}

absl::StatusOr<std::unique_ptr<Dataset>> DescribedCsv(const DataDescription& description) {
  if (description.columns.empty())
    return absl::InvalidArgumentError("the data's description: a table without columns");
  TableForm form{description.columns, {}, description.sample[0], description.scales};
  return std::make_unique<TableDataset>(std::move(form), Classes{description.classes, {}}, nullptr);
}

}  // namespace runnel::data
