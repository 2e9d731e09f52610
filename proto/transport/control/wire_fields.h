#pragma once

// Structs as messages and back, from one list of fields a struct:
//
//   void ListFields(auto& list, ReplicaId& id) {
//     list("generation", id.generation)("sequence", id.sequence);
//   }
//
// Names are the message's. A member is a number, a boolean, an enumeration, a text, a StrongInt, a
// struct with a list, a type with a WireForm, an optional or a vector of these, or an array of
// numbers. A new field is a line in the .proto file, a member and a name here.

#include <array>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/base/ids.h"
#include "proto/base/status_macros.h"
#include "proto/transport/control/wire_message.h"

namespace runnel {

// Of a type that travels as another one:
//   using Form = std::string;
//   static Form To(const T& value);
//   static absl::StatusOr<T> From(Form form);
// or of one with checks of its own, that travels as a message:
//   static void To(T value, google::protobuf::Message& message);
//   static absl::StatusOr<T> From(google::protobuf::Message& message);  // the error names the field
template <typename T>
struct WireForm;

template <typename T>
inline constexpr bool kIsStrongInt = false;
template <typename Tag, typename Rep>
inline constexpr bool kIsStrongInt<StrongInt<Tag, Rep>> = true;
template <typename T>
inline constexpr bool kIsList = false;
template <typename T>
inline constexpr bool kIsList<std::vector<T>> = true;
template <typename T, size_t N>
inline constexpr bool kIsList<std::array<T, N>> = true;
// An array of which a message says nothing while it has its initial values, so that messages and
// files are those of the time before the field.
template <typename T, size_t N>
struct Unsaid {
  std::array<T, N>& values;
  std::array<T, N> initial;
};

template <typename T>
concept HasForm = requires {
  typename WireForm<T>::Form;
};
template <typename T>
concept IsMessage = requires(T value, google::protobuf::Message& message) {
  WireForm<T>::To(std::move(value), message);
};

// Bytes and texts are moved out of the struct.
class FieldWriter {
 public:
  explicit FieldWriter(google::protobuf::Message& to) : to_(to) {}

  template <typename T>
  FieldWriter& operator()(const char* name, T& value) {
    Put({&to_, FieldNamed(to_, name)}, value);
    return *this;
  }

 private:
  template <typename T>
  static void Put(const WireValue& to, std::optional<T>& value) {
    if (value.has_value()) Put(to, *value);
  }

  template <typename T, size_t N>
  static void Put(const WireValue& to, Unsaid<T, N>& array) {
    if (array.values != array.initial) Put(to, array.values);
  }

  template <typename T>
  static void Put(const WireValue& to, T& value) {
    if constexpr (HasForm<T>) {
      typename WireForm<T>::Form form = WireForm<T>::To(value);
      Put(to, form);
    } else if constexpr (IsMessage<T>) {
      WireForm<T>::To(std::move(value), PutChild(to));
    } else if constexpr (kIsList<T>) {
      for (auto& entry : value) Put(to, entry);
    } else if constexpr (std::is_same_v<T, std::string>) {
      PutText(to, std::move(value));
    } else if constexpr (kIsStrongInt<T>) {
      PutInteger(to, value.value());
    } else if constexpr (std::is_floating_point_v<T>) {
      PutReal(to, value);
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      PutInteger(to, static_cast<int64_t>(value));
    } else {
      FieldWriter list(PutChild(to));
      ListFields(list, value);
    }
  }

  google::protobuf::Message& to_;
};

// From a message that has passed CheckMessage: numbers fit. Takes its bytes and texts out of it.
class FieldReader {
 public:
  FieldReader(google::protobuf::Message& from, const FieldPath& path) : from_(from), path_(path) {}

  template <typename T>
  FieldReader& operator()(const char* name, T& value) {
    if (status_.ok()) status_ = Take({&from_, FieldNamed(from_, name)}, {name, &path_}, value);
    return *this;
  }

  // InvalidArgument: the first field that a WireForm does not know, by its name.
  const absl::Status& status() const { return status_; }

 private:
  template <typename T>
  static absl::Status Take(const WireValue& from, const FieldPath& at, std::optional<T>& value) {
    if (!from.message->GetReflection()->HasField(*from.message, from.field))
      return absl::OkStatus();
    return Take(from, at, value.emplace());
  }

  template <typename T>
  requires(!HasForm<std::vector<T>>) static absl::Status
      Take(WireValue from, FieldPath at, std::vector<T>& list) {
    const int entries = from.message->GetReflection()->FieldSize(*from.message, from.field);
    for (from.index = at.index = 0; at.index < entries; from.index = ++at.index)
      RUNNEL_RETURN_IF_ERROR(Take(from, at, list.emplace_back()));
    return absl::OkStatus();
  }

  // Its limit says that the message has as many.
  template <typename T, size_t N>
  static absl::Status Take(WireValue from, FieldPath at, std::array<T, N>& list) {
    for (from.index = at.index = 0; at.index < static_cast<int>(N); from.index = ++at.index)
      RUNNEL_RETURN_IF_ERROR(Take(from, at, list[at.index]));
    return absl::OkStatus();
  }

  template <typename T, size_t N>
  static absl::Status Take(const WireValue& from, const FieldPath& at, Unsaid<T, N>& array) {
    array.values = array.initial;
    const int entries = from.message->GetReflection()->FieldSize(*from.message, from.field);
    if (entries == 0) return absl::OkStatus();
    if (entries == static_cast<int>(N)) return Take(from, at, array.values);
    return absl::InvalidArgumentError(
        absl::StrCat(at.text(), ": has ", entries, " entries, not 0 or ", N));
  }

  template <typename T>
  static absl::Status Take(const WireValue& from, const FieldPath& at, T& value) {
    if constexpr (HasForm<T>) {
      typename WireForm<T>::Form form;
      RUNNEL_RETURN_IF_ERROR(Take(from, at, form));
      absl::StatusOr<T> read = WireForm<T>::From(std::move(form));
      if (!read.ok()) {
        return absl::InvalidArgumentError(absl::StrCat(at.text(), ": ", read.status().message()));
      }
      value = *std::move(read);
    } else if constexpr (IsMessage<T>) {
      RUNNEL_ASSIGN_OR_RETURN(value, WireForm<T>::From(from.child()));
    } else if constexpr (std::is_same_v<T, std::string>) {
      value = from.TakeText();
    } else if constexpr (kIsStrongInt<T>) {
      value = T(static_cast<typename T::rep>(from.integer()));
    } else if constexpr (std::is_floating_point_v<T>) {
      value = from.real();
    } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
      value = static_cast<T>(from.integer());
    } else {
      FieldReader list(from.child(), at);
      ListFields(list, value);
      return list.status();
    }
    return absl::OkStatus();
  }

  google::protobuf::Message& from_;
  const FieldPath& path_;
  absl::Status status_;
};

// The struct as a message of this type, and back once it has passed CheckMessage.
template <typename Wire, typename T>
Wire WriteFields(T value) {
  Wire message;
  FieldWriter list(message);
  ListFields(list, value);
  return message;
}

template <typename T>
absl::StatusOr<T> ReadFields(google::protobuf::Message& message, const FieldPath& path) {
  RUNNEL_RETURN_IF_ERROR(CheckMessage(message, path));
  T value;
  FieldReader list(message, path);
  ListFields(list, value);
  RUNNEL_RETURN_IF_ERROR(list.status());
  return value;
}

}  // namespace runnel
