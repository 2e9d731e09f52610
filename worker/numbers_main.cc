#include "worker/numbers_main.h"

#include <algorithm>
#include <cstdio>
#include <iostream>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"
#include "proto/base/tensor/dtype.h"

namespace runnel {
namespace {

// "bf16": one that single FP32 values become.
bool HasOwnValues(const NumberType& row) { return row.kind == NumberKind::kFloat; }

std::string Types() {
  std::vector<absl::string_view> names;
  for (const NumberType& row : NumberTypes()) {
    if (HasOwnValues(row)) names.push_back(row.name);
  }
  return absl::StrJoin(names, ", ");
}

void PrintElement(const NumberType& type, absl::string_view word, float value) {
  std::vector<std::byte> element(type.bytes);
  type.from_float({&value, 1}, absl::MakeSpan(element));
  float decoded = 0;
  type.to_float(element, 0, {&decoded, 1});
  std::string code;
  for (size_t i = type.bytes; i-- > 0;)
    absl::StrAppendFormat(&code, "%02x", std::to_integer<unsigned>(element[i]));
  absl::PrintF("%s %s %.9g\n", word, code, decoded);
}

}  // namespace

std::shared_ptr<NumbersFlags> AddNumbersCommand(CLI::App& app) {
  auto flags = std::make_shared<NumbersFlags>();
  flags->command = app.add_subcommand(
      "numbers",
      "Read lines of numbers, print each with its code in a number type and the code's value");
  flags->command->add_option("TYPE", flags->type, absl::StrCat("one of ", Types()))->required();
  flags->command->footer(R"(
Examples:
  the half that is nearest to a third
    echo 0.333333 | runnel-worker numbers f16)");
  return flags;
}

absl::Status RunNumbersCommand(const NumbersFlags& flags) {
  const absl::Span<const NumberType> rows = NumberTypes();
  const auto* const type = std::find_if(rows.begin(), rows.end(), [&](const NumberType& row) {
    return row.name == flags.type && HasOwnValues(row);
  });
  if (type == rows.end()) {
    return absl::InvalidArgumentError(
        absl::StrCat("numbers ", flags.type, ": take one of ", Types()));
  }
  std::string line;
  for (int64_t number = 1; std::getline(std::cin, line); ++number) {
    for (absl::string_view word :
         absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty())) {
      float value = 0;
      if (!absl::SimpleAtof(word, &value)) {
        return absl::InvalidArgumentError(
            absl::StrCat("line ", number, ": '", word, "' is no number"));
      }
      PrintElement(*type, word, value);
    }
  }
  return absl::OkStatus();
}

}  // namespace runnel
