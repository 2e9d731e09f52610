#include "proto/process/help_formatter.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace runnel {
namespace {

constexpr size_t kNameWidth = 28;
constexpr size_t kLineWidth = 100;

// The name, and beside it the description in lines of its own column.
std::string InColumns(const std::string& name, const std::string& description) {
  const std::string indent(kNameWidth, ' ');
  std::string text = absl::StrCat("  ", name);
  if (text.size() < kNameWidth) {
    text.resize(kNameWidth, ' ');
  } else {
    absl::StrAppend(&text, "\n", indent);
  }
  size_t column = kNameWidth;
  for (absl::string_view word : absl::StrSplit(description, ' ', absl::SkipEmpty())) {
    if (column > kNameWidth && column + 1 + word.size() > kLineWidth) {
      absl::StrAppend(&text, "\n", indent);
      column = kNameWidth;
    }
    if (column > kNameWidth) {
      text.push_back(' ');
      ++column;
    }
    absl::StrAppend(&text, word);
    column += word.size();
  }
  return text + "\n";
}

class ColumnFormatter final : public CLI::Formatter {
 public:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return InColumns(make_option_name(option, is_positional) + make_option_opts(option),
                     make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* sub) const override {
    return InColumns(sub->get_display_name(true), sub->get_description());
  }
  // Which flags exclude each other is said by the line that refuses them.
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string text = CLI::Formatter::make_option_opts(option);
    return text.substr(0, text.find(" Excludes:"));
  }
};

}  // namespace

std::shared_ptr<CLI::FormatterBase> MakeHelpFormatter() {
  return std::make_shared<ColumnFormatter>();
}

}  // namespace runnel
