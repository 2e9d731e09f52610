#pragma once

// Digests, secrets, and how they are compared. Pure functions but for RandomBytes; any thread.

#include <cstddef>
#include <memory>
#include <string>

#include "absl/strings/string_view.h"

namespace runnel {

// SHA-256 of bytes that come in pieces.
class Sha256Hasher {
 public:
  Sha256Hasher();
  ~Sha256Hasher();
  void Add(absl::string_view bytes);
  // The 32 bytes. Once, last.
  std::string Digest();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// SHA-256 of plain bytes: its 32 bytes, and as 64 lower-case hexadecimal digits.
std::string Sha256(absl::string_view bytes);
std::string Sha256Hex(absl::string_view bytes);

// A secret for one purpose out of another one: HMAC-SHA256 as 64 hexadecimal digits. Who knows the
// result learns nothing of `secret`.
std::string DeriveSecret(absl::string_view secret, absl::string_view purpose);

// Takes the same time wherever two secrets of one size differ.
bool EqualSecrets(absl::string_view a, absl::string_view b);

// Truly random. The process ends if the system has none.
std::string RandomBytes(size_t count);

}  // namespace runnel
