#include "proto/json/json_fields.h"

#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace runnel {
namespace {

// Deep enough for all of ours; the parser recurses.
constexpr int kMaxDepth = 32;
constexpr size_t kMaxMessage = 240;

absl::Status WrongType(absl::string_view key, absl::string_view needed, const Json& json) {
  return absl::InvalidArgumentError(
      absl::StrCat("'", key, "': needs ", needed, ", has ", json.type_name()));
}

absl::Status CheckDepth(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxDepth) return absl::InvalidArgumentError("JSON: nested too deeply");
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return absl::OkStatus();
}

template <typename T>
absl::Status ReadList(const Json& json, absl::string_view key, std::vector<T>& out) {
  if (!json.is_array()) return WrongType(key, "an array", json);
  out.clear();
  for (const Json& element : json) {
    T value{};
    if (absl::Status status = ReadValue(element, key, value); !status.ok()) return status;
    out.push_back(value);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Json> ParseJson(absl::string_view text) {
  if (absl::Status status = CheckDepth(text); !status.ok()) return status;
  // The library reports the place by exception only; it does not leave this function.
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& error) {
    // what() quotes the text that it stumbled over, at any length.
    return absl::InvalidArgumentError(
        absl::StrCat("JSON: ", absl::string_view(error.what()).substr(0, kMaxMessage)));
  }
}

std::string DumpJson(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string DumpRows(const Json& head, absl::string_view key, const std::vector<Json>& rows) {
  std::string text = "{\n";
  for (const auto& [name, value] : head.items())
    absl::StrAppend(&text, " ", DumpJson(name), ": ", DumpJson(value), ",\n");
  absl::StrAppend(&text, " ", DumpJson(std::string(key)), ": [");
  const char* separator = "\n  ";
  for (const Json& row : rows) {
    absl::StrAppend(&text, separator, DumpJson(row));
    separator = ",\n  ";
  }
  return absl::StrCat(text, "\n ]\n}\n");
}

double Rounded(double value, int digits) {
  double rounded = value;
  (void)absl::SimpleAtod(absl::StrFormat("%.*g", digits, value), &rounded);
  return rounded;
}

absl::Status ReadValue(const Json& json, absl::string_view key, int64_t& out) {
  if (!json.is_number_integer()) return WrongType(key, "an integer", json);
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return absl::InvalidArgumentError(absl::StrCat("'", key, "': ", json.dump(), " is too large"));
  }
  out = json.get<int64_t>();
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& json, absl::string_view key, uint64_t& out) {
  if (!json.is_number_unsigned()) return WrongType(key, "an integer of at least 0", json);
  out = json.get<uint64_t>();
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& json, absl::string_view key, int32_t& out) {
  int64_t value = 0;
  if (absl::Status status = ReadValue(json, key, value); !status.ok()) return status;
  if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError(absl::StrCat("'", key, "': ", value, " is out of range"));
  }
  out = static_cast<int32_t>(value);
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& json, absl::string_view key, double& out) {
  if (!json.is_number()) return WrongType(key, "a number", json);
  out = json.get<double>();
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& json, absl::string_view key, bool& out) {
  if (!json.is_boolean()) return WrongType(key, "true or false", json);
  out = json.get<bool>();
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& json, absl::string_view key, std::string& out) {
  if (!json.is_string()) return WrongType(key, "a string", json);
  out = json.get<std::string>();
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& json, absl::string_view key, CodecSchedule& out) {
  std::string text;
  if (absl::Status status = ReadValue(json, key, text); !status.ok()) return status;
  absl::StatusOr<CodecSchedule> read = CodecSchedule::Parse(text);
  if (!read.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("'", key, "': ", read.status().message()));
  }
  out = *std::move(read);
  return absl::OkStatus();
}

absl::Status ReadValue(const Json& json, absl::string_view key, std::vector<int64_t>& out) {
  return ReadList(json, key, out);
}

absl::Status ReadValue(const Json& json, absl::string_view key, std::vector<double>& out) {
  return ReadList(json, key, out);
}

absl::Status ReadValue(const Json& json, absl::string_view key, std::vector<float>& out) {
  if (!json.is_array()) return WrongType(key, "an array", json);
  out.clear();
  for (const Json& element : json) {
    if (!element.is_number()) return WrongType(key, "an array of numbers", element);
    out.push_back(element.get<float>());
  }
  return absl::OkStatus();
}

absl::Status ReadMeasurement(const Json& json, absl::string_view key, double& out) {
  if (json.is_null()) {
    out = std::numeric_limits<double>::quiet_NaN();
    return absl::OkStatus();
  }
  return ReadValue(json, key, out);
}

JsonObject::JsonObject(const Json& json, absl::string_view what) : json_(json), what_(what) {
  if (!json.is_object()) {
    Note(absl::InvalidArgumentError(absl::StrCat("needs an object, has ", json.type_name())));
  }
}

JsonObject& JsonObject::Measurement(absl::string_view key, double& out) {
  if (const Json* value = Find(key)) Note(ReadMeasurement(*value, key, out));
  return *this;
}

JsonObject& JsonObject::Format(absl::string_view format, int64_t version) {
  std::string read_format;
  int64_t read_version = 0;
  Read("format", read_format).Read("version", read_version);
  if (status_.ok() && (read_format != format || read_version != version)) {
    Note(
        absl::InvalidArgumentError(absl::StrCat("is ", read_format.substr(0, 40), " ", read_version,
                                                ", this program reads ", format, " ", version)));
  }
  return *this;
}

const Json* JsonObject::Find(absl::string_view key) {
  if (!status_.ok()) return nullptr;
  known_.emplace(key);
  const auto at = json_.find(std::string(key));
  if (at == json_.end()) {
    Note(absl::InvalidArgumentError(absl::StrCat("'", key, "' is missing")));
    return nullptr;
  }
  return &*at;
}

const Json& JsonObject::Array(absl::string_view key) {
  static const Json empty = Json::array();
  const Json* value = Find(key);
  if (value == nullptr) return empty;
  if (!value->is_array()) {
    Note(WrongType(key, "an array", *value));
    return empty;
  }
  return *value;
}

void JsonObject::Note(absl::Status status) {
  if (!status_.ok() || status.ok()) return;
  status_ = absl::InvalidArgumentError(absl::StrCat(what_, ": ", status.message()));
}

std::string JsonObject::NextKey() const {
  for (const auto& [key, value] : json_.items()) {
    if (known_.count(key) == 0) return key;
  }
  return "";
}

absl::Status JsonObject::Finish() const {
  if (!status_.ok()) return status_;
  const std::string key = NextKey();
  if (key.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(what_, ": '", key, "' is not known"));
}

}  // namespace runnel
