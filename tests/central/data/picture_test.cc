// What the header of a picture may ask for.

#include "central/data/own/picture.h"

#include <png.h>
#include <turbojpeg.h>

#include <cmath>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace runnel::picture_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kWidth = 24, kHeight = 16;

std::string GreyJpeg() {
  const std::vector<unsigned char> rgb(kWidth * kHeight * 3, 90);
  const tjhandle writer = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  EXPECT_EQ(tjCompress2(writer, rgb.data(), kWidth, 0, kHeight, TJPF_RGB, &bytes, &size, TJSAMP_444,
                        95, 0),
            0);
  std::string file(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(writer);
  return file;
}

// The same with another size in its header, which has no check sum.
std::string GreyJpegOf(int width, int height) {
  std::string file = GreyJpeg();
  const size_t frame = file.find("\xff\xc0");
  EXPECT_NE(frame, std::string::npos);
  const auto put = [&](size_t at, int value) {
    file[frame + at] = static_cast<char>(value >> 8);
    file[frame + at + 1] = static_cast<char>(value);
  };
  put(5, height);
  put(7, width);
  return file;
}

absl::StatusOr<data::Picture> Decode(const std::string& file) {
  return data::DecodePicture(
      absl::MakeConstSpan(reinterpret_cast<const uint8_t*>(file.data()), file.size()));
}
std::string Refusal(const std::string& file) {
  return std::string(Decode(file).status().message());
}

TEST(PictureHeader, AsksForNoMoreThanItsFileCanHold) {
  EXPECT_TRUE(Decode(GreyJpegOf(kWidth, kHeight)).ok());
  EXPECT_THAT(
      Refusal(GreyJpegOf(60'000, 60'000)),
      HasSubstr("its header asks for 60000x60000 pixels, over 64 million: make it smaller"));
  EXPECT_THAT(Refusal(GreyJpegOf(7'000, 8'000)),
              AllOf(HasSubstr("its header asks for 7000x8000 pixels, more than its "),
                    HasSubstr(" bytes can hold")));
}

// A palette of one colour, so a bit a pixel.
std::string BlankPng(uint32_t width, uint32_t height) {
  const std::vector<unsigned char> pixels(size_t{width} * height), palette = {200, 100, 50};
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = PNG_FORMAT_RGB_COLORMAP;
  image.colormap_entries = 1;
  png_alloc_size_t size = 0;
  EXPECT_NE(png_image_write_to_memory(&image, nullptr, &size, 0, pixels.data(), 0, palette.data()),
            0);
  std::string file(size, '\0');
  EXPECT_NE(
      png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, palette.data()),
      0);
  file.resize(size);
  return file;
}

// The smallest files for their pixels that there are.
TEST(PictureHeader, OfABlankPictureOfOneBitIsTaken) {
  for (const uint32_t side : {1000u, 4000u}) {
    const std::string file = BlankPng(side, side);
    constexpr size_t kBitDepth = 24;  // of IHDR's fields the third
    ASSERT_EQ(file[kBitDepth], 1);
    const auto picture = Decode(file);
    ASSERT_TRUE(picture.ok()) << picture.status() << ", " << file.size() << " bytes";
    EXPECT_EQ(picture->width, side);
    EXPECT_EQ(picture->rgb.size(), size_t{side} * side * 3);
    EXPECT_GT(picture->rgb.size(), 4096 * file.size());
    EXPECT_EQ(std::vector<uint8_t>(picture->rgb.end() - 3, picture->rgb.end()),
              (std::vector<uint8_t>{200, 100, 50}));
  }
}

TEST(PictureHeader, WithoutASizeSaysSo) {
  const std::string good = GreyJpeg();
  for (size_t bytes = 1; bytes < good.size(); ++bytes)
    EXPECT_THAT(Refusal(good.substr(0, bytes)), AllOf(Not(HasSubstr("0x0")), Not(HasSubstr("\n"))));
  for (const auto& file : {GreyJpegOf(0, 0), GreyJpegOf(kWidth, 0), GreyJpegOf(0, kHeight)}) {
    EXPECT_FALSE(Decode(file).ok());
    EXPECT_THAT(Refusal(file), Not(HasSubstr("0x")));
  }
}

// One pixel of grey with so many bits.
std::string GreyPng(int bits, unsigned value) {
  std::string file;
  png_structp writer = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(writer);
  png_set_write_fn(
      writer, &file,
      [](png_structp png, png_bytep bytes, size_t size) {
        static_cast<std::string*>(png_get_io_ptr(png))
            ->append(reinterpret_cast<char*>(bytes), size);
      },
      [](png_structp) {});
  png_set_IHDR(writer, info, 1, 1, bits, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(writer, info);
  png_byte row[2] = {static_cast<png_byte>(bits == 16 ? value >> 8 : value),
                     static_cast<png_byte>(value)};
  png_write_row(writer, row);
  png_write_end(writer, info);
  png_destroy_write_struct(&writer, &info);
  return file;
}

TEST(Picture, SixteenBitsAreAsBrightAsEight) {
  for (const unsigned value : {0u, 1u, 64u, 128u, 200u, 255u}) {
    const auto eight = Decode(GreyPng(8, value)), sixteen = Decode(GreyPng(16, value * 257));
    ASSERT_TRUE(eight.ok() && sixteen.ok()) << eight.status() << sixteen.status();
    EXPECT_EQ(eight->rgb, std::vector<uint8_t>(3, static_cast<uint8_t>(value)));
    EXPECT_EQ(sixteen->rgb, eight->rgb);
  }
}

// Waves, of which a picture of an eighth of the size still shows everything.
std::string WavesJpeg(int width, int height) {
  std::vector<unsigned char> rgb;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < 3; ++c)
        rgb.push_back(static_cast<unsigned char>(128 + 100 * std::sin(6.0 * x / width + c) *
                                                           std::cos(4.0 * y / height)));
    }
  }
  const tjhandle writer = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  EXPECT_EQ(
      tjCompress2(writer, rgb.data(), width, 0, height, TJPF_RGB, &bytes, &size, TJSAMP_420, 95, 0),
      0);
  std::string file(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(writer);
  return file;
}

// Large JPEGs are read at a part of their size, to nearly the same samples: the last block of eight
// pixels may reach beyond the edge.
TEST(Picture, LargeOnesAreReadSmaller) {
  const std::string file = WavesJpeg(515, 389);
  const absl::Span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(file.data()), file.size());
  const data::Picture whole = data::DecodePicture(bytes).value();
  EXPECT_EQ(whole.width, 515);
  const struct {
    data::PictureSize fitted;
    int64_t width, height;
  } cases[] = {{{24, 32}, 65, 49},
               {{24, 33}, 129, 98},
               {{48, 48}, 129, 98},
               {{64, 96}, 258, 195},
               {{98, 64}, 515, 389}};
  for (const auto& [fitted, width, height] : cases) {
    const auto part = data::DecodePicture(bytes, fitted);
    ASSERT_TRUE(part.ok()) << part.status();
    EXPECT_EQ(part->width, width);
    EXPECT_EQ(part->height, height);
    const std::vector<uint8_t> one = data::Fitted(whole, fitted.height, fitted.width),
                               other = data::Fitted(*part, fitted.height, fitted.width);
    for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(one[i], other[i], 8) << i;
  }
  // Its bits are looked through all the same.
  EXPECT_FALSE(data::DecodePicture(bytes.subspan(0, file.size() / 2), cases[0].fitted).ok());
}

TEST(Picture, OfPrintingInksSaysSo) {
  const std::vector<unsigned char> inks(kWidth * kHeight * 4, 90);
  const tjhandle writer = tjInitCompress();
  unsigned char* bytes = nullptr;
  unsigned long size = 0;
  ASSERT_EQ(tjCompress2(writer, inks.data(), kWidth, 0, kHeight, TJPF_CMYK, &bytes, &size,
                        TJSAMP_444, 95, 0),
            0);
  const std::string file(reinterpret_cast<char*>(bytes), size);
  tjFree(bytes);
  tjDestroy(writer);
  EXPECT_THAT(Refusal(file), HasSubstr("printing inks (CMYK); save it with RGB"));
}

}  // namespace
}  // namespace runnel::picture_test
