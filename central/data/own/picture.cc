#include "central/data/own/picture.h"

#include <png.h>
#include <turbojpeg.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace runnel::data {
namespace {

// A pixel takes three bytes while its picture is read.
constexpr int64_t kMaxPixels = 64'000'000;
// Of one byte of a file: deflate makes at most 1032 of it, each with up to 8 pixels of three bytes
// (24,768); a JPEG of one tone has a bit for each block of 64 pixels or more (1,536).
constexpr int64_t kMostBytesOfOne = 32'768;
constexpr int64_t kChannels = 3;
constexpr absl::string_view kOtherKinds[] = {".bmp",  ".gif",  ".webp", ".tif",
                                             ".tiff", ".heic", ".avif", ".ppm"};

absl::Status Damaged(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("no picture that can be read: ", what));
}

// file_bytes: of the file whose header has this size. divisor: of what is read of it.
absl::StatusOr<Picture> Sized(int64_t width, int64_t height, size_t file_bytes,
                              int64_t divisor = 1) {
  if (width < 1 || height < 1) return Damaged("its header has no size");
  const std::string size = absl::StrCat("its header asks for ", width, "x", height, " pixels, ");
  if (width > kMaxPixels / height)
    return Damaged(
        absl::StrCat(size, "over ", kMaxPixels / 1'000'000, " million: make it smaller"));
  if (width * height * kChannels / kMostBytesOfOne > static_cast<int64_t>(file_bytes))
    return Damaged(absl::StrCat(size, "more than its ", file_bytes, " bytes can hold"));
  Picture picture{(width + divisor - 1) / divisor, (height + divisor - 1) / divisor, {}};
  picture.rgb.resize(static_cast<size_t>(picture.width * picture.height * kChannels));
  return picture;
}

// By which a JPEG's sides may be divided while it is read.
int64_t DivisorOf(int64_t width, int64_t height, const std::optional<PictureSize>& fitted) {
  if (!fitted.has_value()) return 1;
  for (const int64_t divisor : {8, 4, 2}) {
    if (width / divisor >= 2 * fitted->width && height / divisor >= 2 * fitted->height)
      return divisor;
  }
  return 1;
}

absl::StatusOr<Picture> DecodeJpeg(absl::Span<const uint8_t> file,
                                   const std::optional<PictureSize>& fitted) {
  const std::unique_ptr<void, int (*)(tjhandle)> reader(tjInitDecompress(), tjDestroy);
  int width = 0, height = 0, sampling = 0, colours = 0;
  if (tjDecompressHeader3(reader.get(), file.data(), file.size(), &width, &height, &sampling,
                          &colours) != 0)
    return Damaged(tjGetErrorStr2(reader.get()));
  if (colours == TJCS_CMYK || colours == TJCS_YCCK)
    return Damaged("its colours are printing inks (CMYK); save it with RGB");
  absl::StatusOr<Picture> picture =
      Sized(width, height, file.size(), DivisorOf(width, height, fitted));
  if (!picture.ok()) return picture;
  // A warning, of an end that is missing say, is a damage too.
  if (tjDecompress2(reader.get(), file.data(), file.size(), picture->rgb.data(),
                    static_cast<int>(picture->width), 0, static_cast<int>(picture->height),
                    TJPF_RGB, TJFLAG_ACCURATEDCT) != 0)
    return Damaged(tjGetErrorStr2(reader.get()));
  return picture;
}

absl::StatusOr<Picture> DecodePng(absl::Span<const uint8_t> file) {
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  const std::unique_ptr<png_image, void (*)(png_imagep)> freed(&image, png_image_free);
  if (png_image_begin_read_from_memory(&image, file.data(), file.size()) == 0)
    return Damaged(image.message);
  image.format = PNG_FORMAT_RGB;
  // Else values of 16 bits would count as linear light, and come out brighter than those of 8.
  image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
  absl::StatusOr<Picture> picture = Sized(image.width, image.height, file.size());
  if (!picture.ok()) return picture;
  // What is transparent lies on black.
  const png_color background = {};
  if (png_image_finish_read(&image, &background, picture->rgb.data(), 0, nullptr) == 0)
    return Damaged(image.message);
  return picture;
}

// The source pixels of one target pixel along an axis, and their shares.
struct Taps {
  int64_t first = 0;
  std::vector<float> shares;
};

// Of the source pixels [begin, begin + length) to `size` targets.
std::vector<Taps> TapsOf(double begin, double length, int64_t source, int64_t size) {
  const double step = length / static_cast<double>(size), reach = std::max(step, 1.0);
  std::vector<Taps> taps(static_cast<size_t>(size));
  for (size_t i = 0; i < taps.size(); ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * step;
    const auto first = std::max<int64_t>(0, std::llround(std::floor(centre - reach)));
    const auto last = std::min<int64_t>(source - 1, std::llround(std::ceil(centre + reach)));
    taps[i].first = first;
    double sum = 0;
    for (int64_t s = first; s <= last; ++s) {
      const double distance = std::abs(static_cast<double>(s) + 0.5 - centre) / reach;
      taps[i].shares.push_back(static_cast<float>(std::max(0.0, 1 - distance)));
      sum += taps[i].shares.back();
    }
    for (float& share : taps[i].shares) share = static_cast<float>(share / sum);
  }
  return taps;
}

}  // namespace

bool IsPictureName(absl::string_view name) {
  // Hidden: a thumbnail, or what another system keeps beside a file of this name.
  if (absl::StartsWith(name, ".")) return false;
  const std::string lower = absl::AsciiStrToLower(name);
  return absl::EndsWith(lower, ".png") || absl::EndsWith(lower, ".jpg") ||
         absl::EndsWith(lower, ".jpeg");
}

bool IsOtherPictureName(absl::string_view name) {
  const std::string lower = absl::AsciiStrToLower(name);
  return !absl::StartsWith(name, ".") &&
         std::any_of(std::begin(kOtherKinds), std::end(kOtherKinds),
                     [&lower](absl::string_view end) { return absl::EndsWith(lower, end); });
}

absl::StatusOr<Picture> DecodePicture(absl::Span<const uint8_t> file,
                                      std::optional<PictureSize> fitted) {
  if (file.size() > 2 && file[0] == 0xFF && file[1] == 0xD8) return DecodeJpeg(file, fitted);
  if (file.size() > 8 && png_sig_cmp(file.data(), 0, 8) == 0) return DecodePng(file);
  return Damaged("neither PNG nor JPEG");
}

std::vector<uint8_t> Fitted(const Picture& picture, int64_t height, int64_t width) {
  // The part of the source: as high as wide targets allow.
  const double scale = std::min(static_cast<double>(picture.height) / static_cast<double>(height),
                                static_cast<double>(picture.width) / static_cast<double>(width));
  const double part_h = scale * static_cast<double>(height),
               part_w = scale * static_cast<double>(width);
  const std::vector<Taps> rows =
      TapsOf((static_cast<double>(picture.height) - part_h) / 2, part_h, picture.height, height);
  const std::vector<Taps> columns =
      TapsOf((static_cast<double>(picture.width) - part_w) / 2, part_w, picture.width, width);
  std::vector<uint8_t> planes(static_cast<size_t>(kChannels * height * width));
  std::vector<float> line(static_cast<size_t>(picture.width * kChannels));
  for (int64_t y = 0; y < height; ++y) {
    std::fill(line.begin(), line.end(), 0.0f);
    const Taps& row = rows[static_cast<size_t>(y)];
    for (size_t t = 0; t < row.shares.size(); ++t) {
      const uint8_t* source =
          picture.rgb.data() + (row.first + static_cast<int64_t>(t)) * std::ssize(line);
      for (size_t i = 0; i < line.size(); ++i) line[i] += row.shares[t] * source[i];
    }
    for (int64_t x = 0; x < width; ++x) {
      const Taps& column = columns[static_cast<size_t>(x)];
      for (int64_t c = 0; c < kChannels; ++c) {
        float sum = 0;
        for (size_t t = 0; t < column.shares.size(); ++t)
          sum +=
              column.shares[t] *
              line[static_cast<size_t>((column.first + static_cast<int64_t>(t)) * kChannels + c)];
        planes[static_cast<size_t>((c * height + y) * width + x)] =
            static_cast<uint8_t>(std::clamp(sum + 0.5f, 0.0f, 255.0f));
      }
    }
  }
  return planes;
}

}  // namespace runnel::data
