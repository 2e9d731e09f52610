#pragma once

// The one table of what a backend can be told (--backend-option BACKEND.NAME=VALUE): help, check
// and error text of central and workers come from it. Options change arithmetic or resources; where
// libraries and caches of a machine lie is no option. Pure functions; any thread.

#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel {

struct BackendOptionRow {
  absl::string_view backend;
  absl::string_view name;
  // "fp32|fp16": one of these; "SECONDS", "PICOJOULES": a whole number or fraction from `least` on;
  // "TEXT": any.
  absl::string_view values;
  absl::string_view fallback;  // what holds without the option, for people
  absl::string_view help;
  double least = 0;
};

absl::Span<const BackendOptionRow> BackendOptionRows();

// The options that somebody gave, each with a value that its row allows. What only the device
// knows, such as whether there is one of that name, the backend checks when it is opened.
class BackendOptions {
 public:
  // "opencl.weights=fp16; opencl.dot=mad24", as text() writes it; empty: none. InvalidArgument, one
  // line: "backend opencl has no option X: it has ...", or the option's values.
  static absl::StatusOr<BackendOptions> Parse(absl::string_view text);

  // The words of a flag --backend-option that may be given several times. Errors name the flag.
  static absl::StatusOr<BackendOptions> FromFlag(absl::Span<const std::string> words);

  // The value; empty: not given.
  absl::string_view Get(absl::string_view backend, absl::string_view name) const;
  // Of a SECONDS or PICOJOULES option; `fallback` if it is not given.
  double Seconds(absl::string_view backend, absl::string_view name, double fallback) const {
    return Number(backend, name, fallback);
  }
  double Number(absl::string_view backend, absl::string_view name, double fallback) const;
  // In the order of the names, whatever the order in which they were given.
  std::string text() const;
  bool empty() const { return values_.empty(); }

  friend bool operator==(const BackendOptions&, const BackendOptions&) = default;

 private:
  absl::Status Add(absl::string_view text);

  std::map<std::pair<std::string, std::string>, std::string> values_;  // by backend and name
};

// Between two options of one text.
inline constexpr char kBackendOptionSeparator[] = "; ";
// For --help: what --backend-option takes, with all rows.
std::string BackendOptionsHelp();

}  // namespace runnel
