#include "proto/base/backend_options.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/base/status_macros.h"

namespace runnel {
namespace {

constexpr absl::string_view kSeconds = "SECONDS";
constexpr absl::string_view kPicojoules = "PICOJOULES";
constexpr absl::string_view kText = "TEXT";

constexpr double kLeastPicojoules = 1e-3;
constexpr absl::string_view kMacHelp =
    "of a multiply-add with all that belongs to it, as measured, for energy without a sensor";
constexpr absl::string_view kMacFallback = "by the model";

constexpr BackendOptionRow kRows[] = {
    {"cpu", "mac_pj", kPicojoules, kMacFallback, kMacHelp, kLeastPicojoules},
    {"hexagon", "dsp", "auto|device|emulated", "auto",
     "the DSP of this device, one under qemu-hexagon, or auto: the first of them that is there"},
    {"hexagon", "mac_pj", kPicojoules, kMacFallback, kMacHelp, kLeastPicojoules},
    {"hexagon", "stall_s", kSeconds, "150",
     "without a finished operation, after which a DSP counts as hanging", 1},
    {"opencl", "device", kText, "a GPU before others", "part of the name of a device or platform"},
    {"opencl", "dot", "khr|arm|nvidia|mad24|widened", "the fastest that the device has",
     "instructions for int8 products"},
    {"opencl", "host", kText, "none; in a static worker runnel-vendor-host beside it",
     "program that loads the library and calls its functions for the worker"},
    {"opencl", "library", kText, "the system's, else where phones have it",
     "library with OpenCL's functions, by path or as the system's linker knows it"},
    {"opencl", "mac_pj", kPicojoules, kMacFallback, kMacHelp, kLeastPicojoules},
    {"opencl", "memory", "shared|copied", "shared where the device shares the host's memory",
     "where values lie"},
    {"opencl", "tile", kText, "as tuned, else by rule",
     "tile of all products, as in '4x4 by 8x8, depth 8, vector 1'; another text lists them"},
    {"opencl", "weights", "fp32|fp16", "fp32", "as products of recipe fp32 read them"},
    {"opencl", "activations", "fp32|fp16", "fp32", "as the forward keeps them for the backward"},
    {"opencl", "programs", kText, "~/.cache/runnel/opencl",
     "folder of built kernels, which later starts do not build again; off: none are kept"},
    {"opencl", "stall_s", kSeconds, "150; 0 on the host's processor",
     "without an answer of the driver, after which the worker ends; 0: it never does"},
    {"opencl", "tune_s", kSeconds, "2; 0 on the host's processor",
     "of the search for fast kernels at the first start; 0: none"},
    {"small", "l1_kb", "16|32|64|128|256", "64", "KiB of the near memory that holds a tile"},
    {"small", "kernels", "tuned|rule|naive", "tuned",
     "of products: by time, by rule, not unrolled"},
    {"small", "sums", "fp32|fp16", "fp32",
     "of products of recipe fp16; fp16: in the order of PULP-TrainLib, other bytes than ref's"},
    {"small", "tune_s", kSeconds, "2",
     "of the search for fast kernels at the first start; 0: none"},
};

bool IsAllowed(const BackendOptionRow& row, absl::string_view value) {
  if (value.empty() || absl::StrContains(value, ';')) return false;
  if (row.values == kText) return true;
  double number = 0;
  if (row.values == kSeconds || row.values == kPicojoules)
    return absl::SimpleAtod(value, &number) && number >= row.least && number <= 1e9;
  const std::vector<absl::string_view> values = absl::StrSplit(row.values, '|');
  return std::find(values.begin(), values.end(), value) != values.end();
}

std::string AllowedText(const BackendOptionRow& row) {
  if (row.values == kText) return "must be a text without ';'";
  if (row.values == kSeconds) return absl::StrCat("must be seconds, at least ", row.least);
  if (row.values == kPicojoules) return absl::StrCat("must be picojoules, at least ", row.least);
  return absl::StrCat("there is ", absl::StrJoin(absl::StrSplit(row.values, '|'), ", "));
}

const BackendOptionRow* Find(absl::string_view backend, absl::string_view name) {
  for (const BackendOptionRow& row : kRows) {
    if (row.backend == backend && row.name == name) return &row;
  }
  return nullptr;
}

absl::Status NoSuchOption(absl::string_view backend, absl::string_view name) {
  std::vector<absl::string_view> backends, names;
  for (const BackendOptionRow& row : kRows) {
    if (backends.empty() || backends.back() != row.backend) backends.push_back(row.backend);
    if (row.backend == backend) names.push_back(row.name);
  }
  if (names.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("backend '", absl::CHexEscape(backend),
                                                   "' has no options: there are some of ",
                                                   absl::StrJoin(backends, ", ")));
  }
  return absl::InvalidArgumentError(absl::StrCat("backend ", backend, " has no option ",
                                                 absl::CHexEscape(name), ": it has ",
                                                 absl::StrJoin(names, ", ")));
}

}  // namespace

absl::Span<const BackendOptionRow> BackendOptionRows() { return kRows; }

absl::Status BackendOptions::Add(absl::string_view text) {
  const size_t dot = text.find('.');
  const size_t equals = text.find('=');
  if (dot == absl::string_view::npos || equals == absl::string_view::npos || dot > equals) {
    return absl::InvalidArgumentError(absl::StrCat(
        "'", absl::CHexEscape(text), "' is not BACKEND.NAME=VALUE, as opencl.weights=fp16 is"));
  }
  const absl::string_view backend = text.substr(0, dot);
  const absl::string_view name = text.substr(dot + 1, equals - dot - 1);
  const absl::string_view value = absl::StripAsciiWhitespace(text.substr(equals + 1));
  const BackendOptionRow* row = Find(backend, name);
  if (row == nullptr) return NoSuchOption(backend, name);
  if (!IsAllowed(*row, value)) {
    return absl::InvalidArgumentError(
        absl::StrCat(backend, ".", name, " '", absl::CHexEscape(value), "': ", AllowedText(*row)));
  }
  if (!values_.try_emplace({std::string(backend), std::string(name)}, value).second)
    return absl::InvalidArgumentError(absl::StrCat(backend, ".", name, " is given twice"));
  return absl::OkStatus();
}

absl::StatusOr<BackendOptions> BackendOptions::Parse(absl::string_view text) {
  BackendOptions options;
  for (absl::string_view one : absl::StrSplit(text, ';')) {
    one = absl::StripAsciiWhitespace(one);
    if (!one.empty()) RUNNEL_RETURN_IF_ERROR(options.Add(one));
  }
  return options;
}

absl::StatusOr<BackendOptions> BackendOptions::FromFlag(absl::Span<const std::string> words) {
  absl::StatusOr<BackendOptions> options = Parse(absl::StrJoin(words, kBackendOptionSeparator));
  if (options.ok()) return options;
  return absl::InvalidArgumentError(absl::StrCat("--backend-option: ", options.status().message()));
}

absl::string_view BackendOptions::Get(absl::string_view backend, absl::string_view name) const {
  const auto found = values_.find({std::string(backend), std::string(name)});
  return found == values_.end() ? absl::string_view() : absl::string_view(found->second);
}

double BackendOptions::Number(absl::string_view backend, absl::string_view name,
                              double fallback) const {
  double number = 0;
  return absl::SimpleAtod(Get(backend, name), &number) ? number : fallback;
}

std::string BackendOptions::text() const {
  return absl::StrJoin(values_, kBackendOptionSeparator, [](std::string* out, const auto& one) {
    absl::StrAppend(out, one.first.first, ".", one.first.second, "=", one.second);
  });
}

std::string BackendOptionsHelp() {
  std::string help =
      "what a backend is told, as BACKEND.NAME=VALUE; the flag may be given several times.";
  for (const BackendOptionRow& row : kRows) {
    absl::StrAppend(&help, " ", row.backend, ".", row.name, "=", row.values, ": ", row.help,
                    " (default: ", row.fallback, ").");
  }
  help.pop_back();
  return help;
}

}  // namespace runnel
