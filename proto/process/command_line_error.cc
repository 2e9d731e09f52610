#include "proto/process/command_line_error.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Insertions, deletions, replacements and swaps of two neighbours that make b of a (optimal string
// alignment distance).
size_t EditDistance(absl::string_view a, absl::string_view b) {
  std::vector<std::vector<size_t>> least(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) least[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) least[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = least[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      least[i][j] = std::min({least[i - 1][j] + 1, least[i][j - 1] + 1, replaced});
      if (i < 2 || j < 2 || a[i - 1] != b[j - 2] || a[i - 2] != b[j - 1]) continue;
      least[i][j] = std::min(least[i][j], least[i - 2][j - 2] + 1);
    }
  }
  return least[a.size()][b.size()];
}

// The command that was given, or the program.
const CLI::App& CommandOf(const CLI::App& program) {
  const std::vector<CLI::App*> commands = program.get_subcommands();
  return commands.empty() ? program : *commands.front();
}

}  // namespace

std::string DidYouMean(absl::string_view word, const std::vector<std::string>& names) {
  // One character in three may be wrong.
  size_t least = word.size() / 3 + 1;
  const std::string* nearest = nullptr;
  for (const std::string& name : names) {
    const size_t distance = EditDistance(word, name);
    if (distance >= least) continue;
    least = distance;
    nearest = &name;
  }
  return nearest == nullptr ? "" : absl::StrCat("; did you mean ", *nearest, "?");
}

std::vector<std::string> FlagNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

namespace {

// One line for a flag that nobody takes; empty: there is none.
std::string UnknownFlag(const CLI::App& program, const std::string& help,
                        const FlagAnswer& answer) {
  const CLI::App& command = CommandOf(program);
  const std::vector<std::string> words = program.remaining(true);
  const auto at = std::find_if(words.begin(), words.end(),
                               [](const std::string& word) { return absl::StartsWith(word, "-"); });
  if (at == words.end()) return "";
  const std::string flag = at->substr(0, at->find('='));
  const std::string answered = answer == nullptr ? "" : answer(flag, command);
  if (!answered.empty()) return answered;
  std::vector<std::string> names = FlagNames(command);
  if (&command != &program) {
    for (std::string& name : FlagNames(program)) names.push_back(std::move(name));
  }
  const std::string meant = DidYouMean(flag, names);
  return absl::StrCat(flag, " is no flag of ", command.get_name(), meant.empty() ? help : meant);
}

}  // namespace

std::string CommandLineError(const CLI::App& program, const CLI::ParseError& error,
                             const FlagAnswer& answer) {
  const CLI::App& command = CommandOf(program);
  const bool has_command = &command != &program;
  const std::string help =
      absl::StrCat("; see ", program.get_name(), " ", has_command ? command.get_name() : "",
                   has_command ? " " : "", "--help");
  const bool is_too_much = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  // A flag that is needed and mistyped is both: its name is the better answer.
  if (is_too_much || dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    const std::string unknown = UnknownFlag(program, help, answer);
    if (!unknown.empty()) return unknown;
  }
  if (is_too_much) return absl::StrCat("'", program.remaining(true).front(), "' is too much", help);
  std::string what = error.what();
  std::replace(what.begin(), what.end(), '\n', ' ');
  return absl::StrCat(what, help);
}

}  // namespace runnel
