#pragma once

// JPEG and PNG files as pixels, through the system's libraries. Pure functions, any thread.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace runnel::data {

// RGB, a byte a channel, row by row.
struct Picture {
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
};

// Whether a file's name ends as the pictures do that are read: .png, .jpg, .jpeg. Hidden files are
// none.
bool IsPictureName(absl::string_view name);
// Whether it ends as pictures do that are not read: .webp, .bmp, ...
bool IsOtherPictureName(absl::string_view name);

// What a picture will be fitted to.
struct PictureSize {
  int64_t height = 0, width = 0;
};

// The size is checked before memory is allocated. A JPEG is read at a half, a quarter or an eighth of
// its size where both sides stay twice `fitted`: less memory, and a third of the time. Without
// `fitted` pictures are read whole. InvalidArgument: neither format, damaged, larger than 64 million
// pixels, or than a file of its bytes can be.
absl::StatusOr<Picture> DecodePicture(absl::Span<const uint8_t> file,
                                      std::optional<PictureSize> fitted = std::nullopt);

// The largest part around the centre that has the shape height x width, resampled to it by a
// triangle as wide as a source pixel or a target pixel, whichever is wider; planes R, G, B.
std::vector<uint8_t> Fitted(const Picture& picture, int64_t height, int64_t width);

}  // namespace runnel::data
