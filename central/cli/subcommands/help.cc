#include "central/cli/subcommands/help.h"

#include "absl/strings/str_cat.h"

namespace runnel {
namespace {

// Flags that are gone: the flag that took over, and how.
struct RetiredFlag {
  absl::string_view flag, successor, how;
};
constexpr RetiredFlag kRetired[] = {
    {"--cost", "--predictor",
     "--predictor NAME plans from predicted times, without it layers are measured"},
    {"--plan-mbps", "--links", "--links MBPS says the same"},
};

}  // namespace

std::string SuccessorOf(absl::string_view flag, const CLI::App& command) {
  for (const RetiredFlag& row : kRetired) {
    if (row.flag == flag && command.get_option_no_throw(std::string(row.successor)) != nullptr)
      return absl::StrCat(flag, " is gone: ", row.how);
  }
  return "";
}

}  // namespace runnel
