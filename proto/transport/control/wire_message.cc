#include "proto/transport/control/wire_message.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/base/status_macros.h"
#include "proto/limit.pb.h"
#include "proto/transport/control/wire_check.h"

namespace runnel {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using proto::Limit;

constexpr double kMaxReal = 1e15;
constexpr int64_t kMaxEntries = 4096;

const Limit& LimitOf(const FieldDescriptor* field) {
  return field->options().GetExtension(proto::limit);
}

int64_t LargestInteger(const FieldDescriptor* field, const Limit& limit) {
  if (limit.has_max()) return static_cast<int64_t>(limit.max());
  int64_t largest = std::numeric_limits<int64_t>::max();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT32)
    largest = std::numeric_limits<int32_t>::max();
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT32)
    largest = std::numeric_limits<uint32_t>::max();
  if (limit.kind() == Limit::AMOUNT) return std::min(largest, kMaxAmount);
  if (limit.kind() == Limit::SEQUENCE) return std::min(largest, kMaxSequence);
  return largest;
}

// Of a text, or of each text of a list.
size_t MostBytes(const FieldDescriptor* field, const Limit& limit) {
  if (limit.has_most() && !field->is_repeated()) return static_cast<size_t>(limit.most());
  return limit.kind() == Limit::REASON ? kMaxReasonBytes : kMaxTextBytes;
}

absl::Status CheckLength(const std::string& text, const FieldDescriptor* field,
                         const Limit& limit) {
  const bool is_bytes = field->type() == FieldDescriptor::TYPE_BYTES;
  if (is_bytes && !limit.has_most()) return absl::OkStatus();
  const size_t most = MostBytes(field, limit);
  if (text.size() > most)
    return absl::InvalidArgumentError(absl::StrCat(": ", text.size(), " bytes are over ", most));
  if (is_bytes || limit.kind() == Limit::REASON) return absl::OkStatus();
  return limit.kind() == Limit::NAME ? CheckName("", text) : CheckText("", text);
}

absl::Status CheckValue(const Message& message, const FieldDescriptor* field, const Limit& limit,
                        const FieldPath& path) {
  // Only read.
  const WireValue value = {const_cast<Message*>(&message), field, path.index};
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE: {
      const Reflection* reflection = message.GetReflection();
      return CheckMessage(path.index < 0
                              ? reflection->GetMessage(message, field)
                              : reflection->GetRepeatedMessage(message, field, path.index),
                          path);
    }
    case FieldDescriptor::CPPTYPE_STRING: {
      std::string scratch;
      const Reflection* reflection = message.GetReflection();
      return path.Named(CheckLength(
          path.index < 0
              ? reflection->GetStringReference(message, field, &scratch)
              : reflection->GetRepeatedStringReference(message, field, path.index, &scratch),
          field, limit));
    }
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return path.Named(
          CheckReal("", value.real(), limit.min(), limit.has_max() ? limit.max() : kMaxReal));
    default:
      return path.Named(CheckRange("", value.integer(), static_cast<int64_t>(limit.min()),
                                   LargestInteger(field, limit)));
  }
}

// In one line: what a person reads is no place for line ends and escapes.
std::string OneLine(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  return text;
}

}  // namespace

std::string FieldPath::text() const {
  std::string all = above == nullptr ? "" : above->text();
  absl::StrAppend(&all, all.empty() ? "" : ".", name);
  if (index >= 0) absl::StrAppend(&all, "[", index, "]");
  return all;
}

absl::Status FieldPath::Named(const absl::Status& status) const {
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(text(), status.message()));
}

absl::Status CheckMessage(const Message& message, const FieldPath& path) {
  const google::protobuf::Descriptor* type = message.GetDescriptor();
  for (int i = 0; i < type->field_count(); ++i) {
    const FieldDescriptor* field = type->field(i);
    const Limit& limit = LimitOf(field);
    if (limit.kind() == Limit::APART) continue;
    FieldPath at = {field->name(), &path};
    if (!field->is_repeated()) {
      const bool is_missing = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE &&
                              !message.GetReflection()->HasField(message, field);
      if (is_missing) continue;
      RUNNEL_RETURN_IF_ERROR(CheckValue(message, field, limit, at));
      continue;
    }
    const int entries = message.GetReflection()->FieldSize(message, field);
    const int64_t most = limit.has_most() ? limit.most() : kMaxEntries;
    RUNNEL_RETURN_IF_ERROR(at.Named(CheckCount("", entries, limit.least(), most)));
    for (at.index = 0; at.index < entries; ++at.index)
      RUNNEL_RETURN_IF_ERROR(CheckValue(message, field, limit, at));
  }
  return absl::OkStatus();
}

int64_t WireValue::integer() const {
  const Reflection* from = message->GetReflection();
  const bool one = index < 0;
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return one ? from->GetInt32(*message, field) : from->GetRepeatedInt32(*message, field, index);
    case FieldDescriptor::CPPTYPE_UINT32:
      return one ? from->GetUInt32(*message, field)
                 : from->GetRepeatedUInt32(*message, field, index);
    case FieldDescriptor::CPPTYPE_BOOL:
      return one ? from->GetBool(*message, field) : from->GetRepeatedBool(*message, field, index);
    default:
      return one ? from->GetInt64(*message, field) : from->GetRepeatedInt64(*message, field, index);
  }
}

double WireValue::real() const {
  const Reflection* from = message->GetReflection();
  return index < 0 ? from->GetDouble(*message, field)
                   : from->GetRepeatedDouble(*message, field, index);
}

std::string WireValue::TakeText() const {
  const Reflection* from = message->GetReflection();
  std::string scratch;
  const std::string& text =
      index < 0 ? from->GetStringReference(*message, field, &scratch)
                : from->GetRepeatedStringReference(*message, field, index, &scratch);
  if (LimitOf(field).kind() == Limit::REASON) return OneLine(text);
  // Reflection only shows what is the message's own, unless it is empty: then all share it.
  return text.empty() ? std::string() : std::move(const_cast<std::string&>(text));
}

Message& WireValue::child() const {
  const Reflection* from = message->GetReflection();
  return *(index < 0 ? from->MutableMessage(message, field)
                     : from->MutableRepeatedMessage(message, field, index));
}

void PutInteger(const WireValue& to, int64_t value) {
  const Reflection* into = to.message->GetReflection();
  const bool adds = to.field->is_repeated();
  switch (to.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return adds ? into->AddInt32(to.message, to.field, static_cast<int32_t>(value))
                  : into->SetInt32(to.message, to.field, static_cast<int32_t>(value));
    case FieldDescriptor::CPPTYPE_UINT32:
      return adds ? into->AddUInt32(to.message, to.field, static_cast<uint32_t>(value))
                  : into->SetUInt32(to.message, to.field, static_cast<uint32_t>(value));
    case FieldDescriptor::CPPTYPE_BOOL:
      return adds ? into->AddBool(to.message, to.field, value != 0)
                  : into->SetBool(to.message, to.field, value != 0);
    default:
      return adds ? into->AddInt64(to.message, to.field, value)
                  : into->SetInt64(to.message, to.field, value);
  }
}

void PutReal(const WireValue& to, double value) {
  const Reflection* into = to.message->GetReflection();
  to.field->is_repeated() ? into->AddDouble(to.message, to.field, value)
                          : into->SetDouble(to.message, to.field, value);
}

void PutText(const WireValue& to, std::string value) {
  const Limit& limit = LimitOf(to.field);
  if (to.field->type() == FieldDescriptor::TYPE_STRING) {
    const bool cuts = limit.cut() || limit.kind() == Limit::REASON;
    value = CleanUtf8(value, cuts ? MostBytes(to.field, limit) : value.size());
  }
  const Reflection* into = to.message->GetReflection();
  to.field->is_repeated() ? into->AddString(to.message, to.field, std::move(value))
                          : into->SetString(to.message, to.field, std::move(value));
}

Message& PutChild(const WireValue& to) {
  const Reflection* into = to.message->GetReflection();
  return *(to.field->is_repeated() ? into->AddMessage(to.message, to.field)
                                   : into->MutableMessage(to.message, to.field));
}

const FieldDescriptor* FieldNamed(const Message& message, const char* name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  if (field != nullptr) return field;
  std::fprintf(stderr, "%s has no field %s\n", message.GetTypeName().c_str(), name);
  std::abort();
}

}  // namespace runnel
