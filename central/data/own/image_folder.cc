// A folder of pictures: one folder in it for each class.

#include <algorithm>
#include <filesystem>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "central/data/data_files.h"
#include "central/data/loaders.h"
#include "central/data/own/picture.h"
#include "central/data/own/place.h"
#include "central/data/own/split.h"
#include "central/data/read_ahead.h"
#include "proto/base/printable.h"
#include "proto/base/status_macros.h"

namespace runnel::data {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kUsage = "images:FOLDER[,size=SIDE|HEIGHTxWIDTH]";
constexpr int64_t kDefaultSide = 32;
constexpr int64_t kMaxSide = 1024;
constexpr size_t kMaxPictures = 10'000'000;
constexpr uint64_t kMaxFileBytes = uint64_t{256} << 20;
// What is decoded stays in memory up to so many bytes; the other pictures are read each time.
constexpr int64_t kMostKept = int64_t{192} << 20;
// Share of pictures that may be broken.
constexpr size_t kBrokenShare = 100;

struct Files {
  std::vector<std::string> paths;
  std::vector<std::string> folders;  // by picture: the class
  size_t others = 0;                 // pictures of kinds that are not read
  std::string first_other;
};

// What a folder holds, besides the pictures of its classes.
struct Found {
  std::vector<std::pair<std::string, std::string>> pictures;  // class, path
  std::vector<std::string> others;
  std::string inner;  // a folder of folders in it
};

absl::Status FindIn(const fs::path& folder, Found& found) {
  std::error_code error;
  const std::string name = folder.filename().string();
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string file = entry->path().filename().string();
    if (IsPictureName(file)) found.pictures.emplace_back(name, entry->path().string());
    if (IsOtherPictureName(file)) found.others.push_back(entry->path().string());
    std::error_code no_folder;  // a link that leads to itself
    if (entry->is_directory(no_folder)) found.inner = folder.string();
    if (found.pictures.size() > kMaxPictures)
      return absl::InvalidArgumentError(
          absl::StrCat(folder.parent_path().string(), ": more than ", kMaxPictures, " pictures"));
  }
  if (error) return absl::NotFoundError(absl::StrCat(folder.string(), ": ", error.message()));
  return absl::OkStatus();
}

// Of a folder without pictures that are read.
absl::Status NoPictures(const std::string& folder, const Found& found) {
  std::string hint;
  if (!found.others.empty()) {
    hint = absl::StrCat("; ", *std::min_element(found.others.begin(), found.others.end()),
                        " is of a kind that is not read: save pictures as PNG or JPEG");
  } else if (!found.inner.empty()) {
    hint = absl::StrCat("; ", found.inner, " holds folders: is it images:", found.inner, "?");
  }
  return absl::NotFoundError(Printable(absl::StrCat(
      folder, ": holds no folders with .png or .jpg files, one folder a class", hint)));
}

absl::StatusOr<Files> FindFiles(const std::string& folder) {
  std::error_code error;
  Found found;
  for (fs::directory_iterator outer(folder, error), end; !error && outer != end;
       outer.increment(error)) {
    const bool is_hidden = absl::StartsWith(outer->path().filename().string(), ".");
    std::error_code no_folder;  // a link that leads to itself
    if (outer->is_directory(no_folder) && !is_hidden)
      RUNNEL_RETURN_IF_ERROR(FindIn(outer->path(), found));
  }
  if (error) return absl::NotFoundError(absl::StrCat(folder, ": ", error.message()));
  if (found.pictures.empty()) return NoPictures(folder, found);
  // So that the seed, not the file system, decides the split.
  std::sort(found.pictures.begin(), found.pictures.end());
  Files files;
  files.others = found.others.size();
  if (files.others > 0)
    files.first_other = *std::min_element(found.others.begin(), found.others.end());
  for (auto& [name, path] : found.pictures) {
    files.folders.push_back(std::move(name));
    files.paths.push_back(std::move(path));
  }
  return files;
}

// The luma of ITU-R BT.601 of three planes.
std::vector<uint8_t> Grey(absl::Span<const uint8_t> planes) {
  const size_t plane = planes.size() / 3;
  std::vector<uint8_t> grey(plane);
  for (size_t i = 0; i < plane; ++i)
    grey[i] = static_cast<uint8_t>(
        (299 * planes[i] + 587 * planes[plane + i] + 114 * planes[2 * plane + i] + 500) / 1000);
  return grey;
}

absl::StatusOr<std::vector<uint8_t>> ReadPicture(const std::string& path, const Shape& shape) {
  std::error_code error;
  const uint64_t bytes = fs::file_size(path, error);
  if (error || bytes > kMaxFileBytes)
    return absl::InvalidArgumentError(absl::StrCat(path, ": cannot be read, or is too large"));
  RUNNEL_ASSIGN_OR_RETURN(ByteReader reader, ByteReader::Open(path));
  RUNNEL_ASSIGN_OR_RETURN(const std::vector<uint8_t> file, reader.Read(bytes));
  absl::StatusOr<Picture> picture = DecodePicture(file, PictureSize{shape[1], shape[2]});
  if (!picture.ok())
    return absl::InvalidArgumentError(
        Printable(absl::StrCat(path, ": ", picture.status().message())));
  std::vector<uint8_t> planes = Fitted(*picture, shape[1], shape[2]);
  return shape[0] == 1 ? Grey(planes) : std::move(planes);
}

// Pictures by bytes; normalised on the way out.
class PictureDataset final : public Dataset {
 public:
  // kept: the pixels of the first of them.
  PictureDataset(Shape shape, std::vector<std::string> paths, Classes classes,
                 std::vector<uint8_t> kept)
      : shape_(std::move(shape)),
        paths_(std::move(paths)),
        classes_(std::move(classes)),
        kept_(std::move(kept)) {}

  int64_t size() const override { return std::ssize(paths_); }
  const Shape& sample_shape() const override { return shape_; }
  int64_t classes() const override { return std::ssize(classes_.names); }
  int32_t label(int64_t index) const override {
    return classes_.labels[static_cast<size_t>(index)];
  }
  bool reads_files() const override { return size() * shape_.elements() > std::ssize(kept_); }
  float outside(int64_t channel) const override { return Scaled(0, channel); }
  // A picture that has gone since it was looked at is black.
  void CopySample(int64_t index, absl::Span<float> out) const override {
    std::vector<uint8_t> read;
    const absl::Span<const uint8_t> pixels = Pixels(index, read);
    const size_t plane = out.size() / scales_.size();
    for (size_t i = 0; i < out.size(); ++i)
      out[i] = Scaled(pixels[i], static_cast<int64_t>(i / plane));
  }

  // A byte a channel, by planes.
  std::vector<uint8_t> Pixels(int64_t index) const {
    std::vector<uint8_t> read;
    const absl::Span<const uint8_t> pixels = Pixels(index, read);
    return {pixels.begin(), pixels.end()};
  }
  void set_scales(std::vector<ChannelScale> scales) { scales_ = std::move(scales); }
  std::string class_name(int64_t label) const override {
    return classes_.names[static_cast<size_t>(label)];
  }
  std::string sample_name(int64_t index) const override {
    return paths_[static_cast<size_t>(index)];
  }
  DataDescription Describe() const override {
    return {.kind = "images", .sample = shape_, .classes = classes_.names, .scales = scales_};
  }
  absl::StatusOr<std::unique_ptr<Dataset>> Unlabelled(const std::string& path) const override;

 private:
  float Scaled(uint8_t pixel, int64_t channel) const {
    const ChannelScale& scale = scales_[static_cast<size_t>(channel)];
    return static_cast<float>((pixel / 255.0 - scale.mean) / scale.deviation);
  }

  // The kept pixels, or those in `read`.
  absl::Span<const uint8_t> Pixels(int64_t index, std::vector<uint8_t>& read) const {
    const int64_t bytes = shape_.elements();
    if ((index + 1) * bytes <= std::ssize(kept_))
      return absl::MakeConstSpan(kept_).subspan(static_cast<size_t>(index * bytes),
                                                static_cast<size_t>(bytes));
    absl::StatusOr<std::vector<uint8_t>> pixels =
        ReadPicture(paths_[static_cast<size_t>(index)], shape_);
    read = pixels.ok() ? *std::move(pixels) : std::vector<uint8_t>(static_cast<size_t>(bytes));
    return read;
  }

  Shape shape_;
  std::vector<std::string> paths_;
  Classes classes_;
  std::vector<uint8_t> kept_;
  std::vector<ChannelScale> scales_;
};

// What can be read of a folder.
struct Readable {
  Files files;
  std::vector<uint8_t> kept;  // pixels of the first of them
  std::string note;           // on those that cannot; empty: none
};

std::vector<int64_t> UpTo(size_t count) {
  std::vector<int64_t> indices(count);
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

using PixelsOrError = absl::StatusOr<std::vector<uint8_t>>;

// In the order of the paths. They outlive it.
ReadInOrder<PixelsOrError> ReaderOf(const std::vector<std::string>& paths, const Shape& shape) {
  return {UpTo(paths.size()), [&paths, shape](int64_t index) {
            return ReadPicture(paths[static_cast<size_t>(index)], shape);
          }};
}

// InvalidArgument names the first of too many broken pictures.
absl::StatusOr<Readable> ReadAll(const Files& files, const Shape& shape,
                                 const LoadRequest& request) {
  Readable readable;
  const int64_t count = std::ssize(files.paths);
  readable.kept.reserve(static_cast<size_t>(std::min(count * shape.elements(), kMostKept)));
  std::string first_broken;
  size_t broken = 0;
  ReadInOrder<PixelsOrError> reader = ReaderOf(files.paths, shape);
  for (size_t i = 0; i < files.paths.size(); ++i) {
    const std::shared_ptr<const PixelsOrError> read = reader.Next();
    request.Tell(static_cast<double>(i) / static_cast<double>(count));
    if (!read->ok()) {
      if (broken++ == 0) first_broken = std::string(read->status().message());
      continue;
    }
    readable.files.paths.push_back(files.paths[i]);
    readable.files.folders.push_back(files.folders[i]);
    if (std::ssize(readable.files.paths) * shape.elements() <= kMostKept)
      readable.kept.insert(readable.kept.end(), (*read)->begin(), (*read)->end());
  }
  if (files.others > 0) {
    readable.note = absl::StrCat(files.others,
                                 " pictures of other kinds than PNG and JPEG are left "
                                 "out, the first: ",
                                 Printable(files.first_other));
  }
  if (broken == 0) return readable;
  absl::StrAppend(&readable.note, readable.note.empty() ? "" : "; ", broken, " of ",
                  files.paths.size(), " pictures are left out, the first: ", first_broken);
  if (broken * kBrokenShare <= files.paths.size()) return readable;
  return absl::InvalidArgumentError(absl::StrCat(
      broken, " of ", files.paths.size(), " pictures are broken, the first: ", first_broken,
      "; mend or remove them (of a hundred, one is left out)"));
}

// The file itself, or the pictures that lie in the folder, in the order of their names.
absl::StatusOr<std::vector<std::string>> PicturesAt(const std::string& place) {
  std::error_code error;
  if (!fs::is_directory(place, error)) {
    if (fs::exists(place, error)) return std::vector<std::string>{place};
    return absl::NotFoundError(absl::StrCat(place, ": does not exist"));
  }
  std::vector<std::string> paths;
  for (fs::directory_iterator entry(place, error), end; !error && entry != end;
       entry.increment(error)) {
    if (IsPictureName(entry->path().filename().string())) paths.push_back(entry->path().string());
  }
  if (error) return absl::NotFoundError(absl::StrCat(place, ": ", error.message()));
  if (paths.empty())
    return absl::NotFoundError(absl::StrCat(place, ": holds no .png or .jpg files"));
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Each picture must be readable: it has a prediction.
absl::StatusOr<std::unique_ptr<Dataset>> PictureDataset::Unlabelled(const std::string& path) const {
  RUNNEL_ASSIGN_OR_RETURN(std::vector<std::string> paths, PicturesAt(path));
  std::vector<uint8_t> kept;
  ReadInOrder<PixelsOrError> reader = ReaderOf(paths, shape_);
  for (size_t i = 0; i < paths.size(); ++i) {
    const std::shared_ptr<const PixelsOrError> pixels = reader.Next();
    RUNNEL_RETURN_IF_ERROR(pixels->status());
    if (std::ssize(kept) == static_cast<int64_t>(i) * shape_.elements() &&
        std::ssize(kept) + shape_.elements() <= kMostKept)
      kept.insert(kept.end(), (*pixels)->begin(), (*pixels)->end());
  }
  Classes classes{classes_.names, std::vector<int32_t>(paths.size())};
  auto pictures = std::make_unique<PictureDataset>(shape_, std::move(paths), std::move(classes),
                                                   std::move(kept));
  pictures->set_scales(scales_);
  return pictures;
}

absl::StatusOr<Shape> ShapeOf(const std::string& size) {
  if (size.empty()) return Shape{3, kDefaultSide, kDefaultSide};
  const std::vector<absl::string_view> sides = absl::StrSplit(size, 'x');
  int64_t height = 0, width = 0;
  const bool is_size = sides.size() <= 2 && absl::SimpleAtoi(sides.front(), &height) &&
                       absl::SimpleAtoi(sides.back(), &width) && height >= 1 && width >= 1 &&
                       height <= kMaxSide && width <= kMaxSide;
  if (is_size) return Shape{3, height, width};
  return absl::InvalidArgumentError(absl::StrCat(
      "--data ", kUsage, ": size=", size, ": must be a side or HEIGHTxWIDTH, 1 to ", kMaxSide));
}

}  // namespace

absl::StatusOr<DatasetSplits> LoadImageFolder(const LoadRequest& request) {
  RUNNEL_ASSIGN_OR_RETURN(const Place place, ParsePlace(request.place, 1, {"size"}, kUsage));
  RUNNEL_ASSIGN_OR_RETURN(const Shape shape, ShapeOf(place.Option("size")));
  RUNNEL_ASSIGN_OR_RETURN(const Files files, FindFiles(place.paths[0]));
  RUNNEL_ASSIGN_OR_RETURN(Readable readable, ReadAll(files, shape, request));
  RUNNEL_ASSIGN_OR_RETURN(Classes classes, ClassesOf(readable.files.folders, place.paths[0]));
  SplitIndices split = SplitByClass(classes.labels, std::ssize(classes.names), request.seed);
  auto all = std::make_shared<PictureDataset>(shape, std::move(readable.files.paths),
                                              std::move(classes), std::move(readable.kept));
  ReadInOrder<std::vector<uint8_t>> reader(ScaledOf(split.train),
                                           [&](int64_t index) { return all->Pixels(index); });
  const auto read_next = [&reader](int64_t, absl::Span<double> shares) {
    const std::shared_ptr<const std::vector<uint8_t>> pixels = reader.Next();
    for (size_t i = 0; i < shares.size(); ++i) shares[i] = (*pixels)[i] / 255.0;
    return absl::OkStatus();
  };
  RUNNEL_ASSIGN_OR_RETURN(std::vector<ChannelScale> scales,
                          MeasureScales(split.train, 3, shape[1] * shape[2], read_next));
  all->set_scales(std::move(scales));
  DatasetSplits splits = SplitsOf(std::move(all), std::move(split));
  if (!readable.note.empty())
    absl::StrAppend(&splits.note, splits.note.empty() ? "" : "; ", readable.note);
  return splits;
}

absl::StatusOr<std::unique_ptr<Dataset>> DescribedImages(const DataDescription& description) {
  const Shape& shape = description.sample;
  const bool is_picture = shape.rank() == 3 && (shape[0] == 1 || shape[0] == 3) &&
                          shape[1] <= kMaxSide && shape[2] <= kMaxSide;
  if (!is_picture) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data's description: ", shape.ToString(), " is no picture"));
  }
  auto pictures = std::make_unique<PictureDataset>(
      shape, std::vector<std::string>(), Classes{description.classes, {}}, std::vector<uint8_t>());
  pictures->set_scales(description.scales);
  return pictures;
}

}  // namespace runnel::data
