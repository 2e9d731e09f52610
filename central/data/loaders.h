#pragma once

// The data sets' loaders, one function each; builtin_datasets.cc is the table and dataset.h the
// contract of each, errors included.

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "central/data/dataset.h"

namespace runnel::data {

// Digits drawn from strokes: 1x28x28, 10 classes, 6000 to train and 1000 to test, equally many of
// each class. Position, size, rotation, slant, pen, ink, noise and stray strokes are random, so
// that a linear model stays well below a convolutional one. The seed fixes every pixel on every
// machine. Normalised as MNIST. data_dir is not used.
absl::StatusOr<DatasetSplits> LoadSyntheticDigits(absl::string_view data_dir, uint64_t seed);

// Windows of an imagined phone in the pocket: 9 x 128, 6 classes, 2400 to train and 600 to test,
// equally many of each class. Channels as UCI HAR's. Classes are a cadence (slow, fast) and how the
// swing of the axes follows one another; phase, amplitude, gravity, drift and noise are random, so
// that no linear function of the samples tells them apart. data_dir is not used.
absl::StatusOr<DatasetSplits> LoadSyntheticHar(absl::string_view data_dir, uint64_t seed);

// Words as a recogniser of keywords gets them: 49 frames of 10 cepstral coefficients, 1x49x10, 12
// classes, 4800 to train and 1200 to test, equally many of each class. A class is two of four
// sounds in their order; onset, length, pitch, loudness, microphone and noise are random, so that
// no linear function tells them apart. data_dir is not used.
absl::StatusOr<DatasetSplits> LoadSyntheticKeywords(absl::string_view data_dir, uint64_t seed);

// MNIST's four IDX files, plain or .gz, in data_dir or its mnist/ subfolder: 1x28x28, 10 classes.
// Any number of images. (x / 255 - 0.1307) / 0.3081.
absl::StatusOr<DatasetSplits> LoadMnist(absl::string_view data_dir, uint64_t seed);

// WikiText-2's texts of training and test in data_dir or its wikitext2/ subfolder, byte by byte:
// samples of 128 tokens of 256, one label a token, the byte behind it. The rest of a text that fills
// no sample is left out.
absl::StatusOr<DatasetSplits> LoadWikitext2(absl::string_view data_dir, uint64_t seed);

// The same texts by words between blanks, with a mark behind each line: samples of 128 of as many
// tokens as the training text has words, at most 65,536. A word that only the test has is <unk>.
absl::StatusOr<DatasetSplits> LoadWikitext2Words(absl::string_view data_dir, uint64_t seed);

// CIFAR-10's binary version: any number of data_batch_N.bin in the order of N, and test_batch.bin,
// in data_dir or its cifar10/ or cifar-10-batches-bin/ subfolder: 3x32x32, 10 classes. Normalised
// by channel: mean .4914 .4822 .4465, deviation .247 .243 .261. Files that are still packed (.xz)
// give an error with the command that unpacks them.
absl::StatusOr<DatasetSplits> LoadCifar10(absl::string_view data_dir, uint64_t seed);

// UCI HAR's raw inertial signals in the original text layout, in data_dir, its "UCI HAR Dataset"
// subfolder, or one of these below ucihar/ or ucihar-subset/: 9 x 128, 6 classes (1..6 in the file,
// 0..5 here). Channels: body_acc x y z, body_gyro x y z, total_acc x y z, each standardised by the
// mean and deviation of the training split. An archive that is still packed gives an error with
// the command that unpacks it.
absl::StatusOr<DatasetSplits> LoadUciHar(absl::string_view data_dir, uint64_t seed);

// Data of the user's own. `place` is what stands behind the colon of --data KIND:PLACE. Of each
// class one sample in five, drawn by the seed, is the test (own/split.h). Numbers are normalised by
// the training samples' mean and deviation.

// FILE[,label=COLUMN][,skip=COLUMN;COLUMN...]: a table with a line a sample, by commas, semicolons
// or tabs, its first line the columns' names if it holds a text. A column of numbers is a feature,
// one of texts a feature for each text. Samples are (features); those of a large table are read one by one.
absl::StatusOr<DatasetSplits> LoadCsv(const LoadRequest& request);

// SAMPLES,LABELS[,test=SAMPLES;LABELS][,scale=off][,tokens=COUNT]: two .npy files, and two of the test in place of
// one sample in five. scale=off leaves the numbers as they are. Samples of bytes are pixels. They
// are read from the file one by one, so that it may be larger than memory. tokens: npy_tokens.h.
absl::StatusOr<DatasetSplits> LoadNpy(absl::string_view place, uint64_t seed);

// FOLDER[,size=SIDE|HEIGHTxWIDTH]: a folder for each class with JPEG and PNG files, cut to the size
// around the centre (32): (3, height, width). Files that cannot be read are left out and counted,
// up to one in a hundred.
absl::StatusOr<DatasetSplits> LoadImageFolder(const LoadRequest& request);

// Readers of samples without labels, of a description that the three sets above gave, or others of
// their kind: DatasetRow::described.
absl::StatusOr<std::unique_ptr<Dataset>> DescribedCsv(const DataDescription& description);
absl::StatusOr<std::unique_ptr<Dataset>> DescribedNpy(const DataDescription& description);
absl::StatusOr<std::unique_ptr<Dataset>> DescribedImages(const DataDescription& description);

// FILE that `learn` wrote (central/data/latents/latent_set.h). Both splits are all of it.
absl::StatusOr<DatasetSplits> LoadLatents(absl::string_view path, uint64_t seed);

}  // namespace runnel::data
