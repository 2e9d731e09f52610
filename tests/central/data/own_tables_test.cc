// Tables as spreadsheets and people make them: read as they are meant, or refused in a line.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "central/data/loaders.h"
#include "central/data/own/table_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/base/random.h"
#include "tests/central/data/data_scratch.h"
#include "tests/central/data/own_samples.h"

namespace runnel::own_tables_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class OwnTables : public testing::Test {
 protected:
  std::string At(const std::string& name) const { return absl::StrCat(folder_.path(), "/", name); }
  absl::StatusOr<DatasetSplits> Csv(const std::string& text, const std::string& options = "") {
    folder_.Write("t.csv", text);
    return data::LoadCsv({.place = absl::StrCat(At("t.csv"), options)});
  }

  DataFolder folder_;
};

// What spreadsheets and other tools write.
TEST_F(OwnTables, TablesOfSpreadsheets) {
  EXPECT_EQ(Csv("a,label\r1,x\r2,y\r3,x\r4,y\r")->train->sample_shape(), Shape({1})) << "CR";
  // Commas before decimals.
  const auto comma = Csv("a;b;label\n-1,5;2;x\n-0,5;3;y\n0,5;4;x\n1,5e0;5;y\n");
  ASSERT_TRUE(comma.ok()) << comma.status();
  EXPECT_EQ(comma->train->sample_shape(), Shape({2}));
  const auto point = Csv("a,b,label\n-1.5,2,x\n-0.5,3,y\n0.5,4,x\n1.5,5,y\n");
  EXPECT_EQ(Sample(*comma->train, 0), Sample(*point->train, 0));
  const std::string wide(
      "\xFF\xFE"
      "a\0,\0b\0\n\0",
      10);
  EXPECT_THAT(Refusal(Csv(wide)), HasSubstr("is text in UTF-16; save the table as CSV in UTF-8"));
  EXPECT_THAT(Refusal(Csv(std::string("PK\x03\x04\0", 5))), HasSubstr("is no text; save"));
  EXPECT_THAT(Refusal(data::LoadCsv({.place = folder_.path()})), HasSubstr("is a folder"));
  // A quote within a field is a quote.
  EXPECT_EQ(Csv("a,label\n5\" wide,x\n6\"\",y\n5\" wide,x\n6\"\",y\n")->train->sample_shape(),
            Shape({2}));
  // Nothing is known.
  EXPECT_EQ(Csv("a,label\nN/A,x\nnull,y\n3,x\n4,y\n")->train->sample_shape(), Shape({1}));
}

// Records end where they do in the whole text, wherever the pieces end in which a file is read.
TEST_F(OwnTables, PiecesOfAFileEndAnywhere) {
  for (const uint64_t seed : {1, 2, 3}) {
    SCOPED_TRACE(seed);
    const CounterRandom random(seed, RandomPurpose::kShuffle, 0, 0);
    std::string text = "a,b,label\n";
    std::vector<std::vector<std::string>> rows;
    for (uint32_t i = 0; text.size() < (size_t{5} << 20) / 2; ++i) {
      const auto draw = [&](uint32_t what, uint32_t below) {
        return random.Below(8 * i + what, below);
      };
      const std::string word(draw(0, 40), static_cast<char>('a' + draw(1, 26)));
      rows.push_back({absl::StrCat(draw(2, 1000)), absl::StrCat(word, "\"\r\n,", word, "z"), "x"});
      absl::StrAppend(&text, rows.back()[0], ",\"", word, "\"\"\r\n,", word, "z\",x",
                      draw(3, 2) == 0 ? "\r\n" : "\n", draw(4, 9) == 0 ? "\r\n" : "");
    }
    folder_.Write("t.csv", text);
    const auto table = data::TableFile::Open(At("t.csv"));
    ASSERT_TRUE(table.ok()) << table.status();
    ASSERT_EQ((*table)->rows(), std::ssize(rows));
    ASSERT_TRUE((*table)
                    ->ForEach([&](int64_t row, const data::TableRow& fields) {
                      EXPECT_EQ(fields, rows[static_cast<size_t>(row)]);
                      return absl::OkStatus();
                    })
                    .ok());
    for (int64_t row = 0; row < (*table)->rows(); row += 997)
      EXPECT_EQ((*table)->Read(row).value(), rows[static_cast<size_t>(row)]) << row;
  }
}

// A table whose features would be too much for memory is read line by line.
TEST_F(OwnTables, LargeTablesStayInTheFile) {
  constexpr int kCategories = 250, kRows = 210'000;
  std::string text = "word,label\n";
  for (int i = 0; i < kRows; ++i)
    absl::StrAppend(&text, "w", 100 + i * 7 % kCategories, ",", i % 2, "\n");
  const auto large = Csv(text);
  ASSERT_TRUE(large.ok()) << large.status();
  EXPECT_TRUE(large->train->reads_files());
  EXPECT_EQ(large->train->size() + large->test->size(), kRows);
  ASSERT_EQ(large->train->sample_shape(), Shape({kCategories}));
  for (int64_t i = 0; i < large->test->size(); i += 1999) {
    const std::vector<float> sample = Sample(*large->test, i);
    const std::string place = large->test->sample_name(i);  // ".../t.csv:LINE"
    const int row = std::stoi(place.substr(place.rfind(':') + 1)) - 2;
    EXPECT_EQ(std::max_element(sample.begin(), sample.end()) - sample.begin(),
              row * 7 % kCategories);
    EXPECT_EQ(large->test->label(i), row % 2);
  }
  // What has gone is the mean.
  std::filesystem::resize_file(At("t.csv"), 10);
  const std::vector<float> gone = Sample(*large->test, 0);
  EXPECT_EQ(std::count(gone.begin(), gone.end(), 0.0f), kCategories);
}

// A comma before three digits may stand between thousands: 1,234 is no 1.234.
TEST_F(OwnTables, CommasBetweenThousandsAreRefused) {
  const std::string unclear =
      "has commas that may stand before decimals or between thousands; write decimals after a "
      "point and thousands without commas, or leave the column out with skip=a";
  for (const std::string fields :
       {"1,234 12,500 999 5", "1,5 1,234,567 1 2", "-1,234,567 1 2 3", "1,5 2.5 1 2",
        "1,234.5 2 3 4", "1.234,5 2,5 1 2", "1.234 2,5 1 2"}) {
    for (const char separator : {';', '\t'}) {
      std::string text =
          absl::StrCat("a", std::string(1, separator), "b", std::string(1, separator), "label\n7",
                       std::string(1, separator), "1,5", std::string(1, separator), "x\n");
      for (absl::string_view field : absl::StrSplit(fields, ' '))
        absl::StrAppend(&text, field, std::string(1, separator), "2", std::string(1, separator),
                        "y\n");
      const auto refused = Csv(text);
      EXPECT_THAT(Refusal(refused), AllOf(HasSubstr("line "), HasSubstr("column 'a' " + unclear)))
          << text;
      EXPECT_EQ(Csv(text, ",skip=a")->train->sample_shape(), Shape({1}));
    }
  }
  EXPECT_THAT(Refusal(Csv("a\tlabel\n7\tx\n1,234\ty\n")), HasSubstr("line 3: column 'a'"));
  // Without a line of names the first line is a sample all the same.
  EXPECT_THAT(Refusal(Csv("1,234;x\n2;y\n3;x\n")), HasSubstr("line 1: column 'column 1'"));
}

TEST_F(OwnTables, CommasThatAreDecimalsAreRead) {
  // No thousands begin with 0 or have four digits before them; names keep their commas.
  const auto comma = Csv("a 1,5;b;label\n0,125;1234,500;x\n1,250;2;y\n0,5;3,000;x\n3;4;y\n");
  ASSERT_TRUE(comma.ok()) << comma.status();
  const auto point = Csv("a,b,label\n.125,1234.5,x\n1.25,2,y\n.5,3,x\n3,4,y\n");
  for (int64_t i = 0; i < point->train->size(); ++i)
    EXPECT_EQ(Sample(*comma->train, i), Sample(*point->train, i));
  EXPECT_EQ(comma->train->Describe().columns[0].name, "a 1,5");
  folder_.Write("p.csv", "a 1,5;b\n1,234;2\n");
  EXPECT_THAT(std::string(comma->train->Unlabelled(At("p.csv")).status().message()),
              HasSubstr("line 2: column 'a 1,5' has commas"));
  EXPECT_EQ(Csv("1,5;x\n2,5;y\n3;x\n4;y\n")->train->sample_shape(), Shape({1})) << "no names";
  EXPECT_EQ(Csv("a,\"b;c\",label\n1,2,x\n2,3,y\n")->train->sample_shape(), Shape({2}));
  // Classes are texts.
  EXPECT_EQ(Csv("a;label\n1;1,234\n2;5,678\n3;1,234\n4;5,678\n")->train->classes(), 2);
}

// A text among many numbers is a mistake, one among few is a category.
TEST_F(OwnTables, StrayTextsAreRefused) {
  std::string text = "a,doors,label\n";
  for (int i = 0; i < 40; ++i)
    absl::StrAppend(&text, i == 7 ? "1O.5" : absl::StrCat(i, ".5"), ",",
                    i % 4 == 3 ? "more" : absl::StrCat(i % 4), ",", i % 2, "\n");
  EXPECT_THAT(Refusal(Csv(text)),
              HasSubstr("line 9: column 'a' holds '1O.5', which is no number, and more than 20 "
                        "numbers; mend it, empty the field if nothing is known, or leave the "
                        "column out with skip=a"));
  EXPECT_EQ(Csv(text, ",skip=a")->train->sample_shape(), Shape({4}));
  EXPECT_THAT(Refusal(Csv("a,label\n1,x\n1e39,y\n")), HasSubstr("is 1e39, more than FP32"));
}

TEST_F(OwnTables, MeasuredValuesAreNoClasses) {
  std::string text = "a,price\n", numbers = "a,number\n";
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&text, i, ",", 0.25 + i % 25, "\n");
    absl::StrAppend(&numbers, i, ",", i % 25, "\n");
  }
  EXPECT_THAT(Refusal(Csv(text)), AllOf(HasSubstr("column 'price' holds 0.25, one of 25 values"),
                                        HasSubstr("label=COLUMN")));
  EXPECT_EQ(Csv(numbers)->train->classes(), 25);
}

// The second column of a name is read from its own place, also where predictions read it.
TEST_F(OwnTables, ColumnsOfOneName) {
  const auto splits = Csv("a,a,label\n1,5,x\n2,9,y\n3,4,x\n4,7,y\n");
  ASSERT_TRUE(splits.ok()) << splits.status();
  folder_.Write("p.csv", "a,a\n1,5\n2,9\n3,4\n4,7\n");
  const auto read = splits->train->Unlabelled(At("p.csv"));
  ASSERT_TRUE(read.ok()) << read.status();
  for (int64_t i = 0; i < splits->train->size(); ++i) {
    const std::string name = splits->train->sample_name(i);  // t.csv:LINE
    const int64_t row = name.back() - '2';
    EXPECT_EQ(Sample(**read, row), Sample(*splits->train, i)) << name;
  }
}

// A number that is given counts on until no column has the name.
TEST_F(OwnTables, NumbersOfRepeatedNamesAreUnused) {
  const auto splits = Csv("a,a,a (2),a,label\n1,5,6,7,x\n2,9,8,7,y\n3,4,1,2,x\n4,7,6,5,y\n");
  ASSERT_TRUE(splits.ok()) << splits.status();
  std::vector<std::string> names;
  for (const TableColumn& column : splits->train->Describe().columns) names.push_back(column.name);
  EXPECT_THAT(names, ElementsAre("a", "a (3)", "a (2)", "a (4)"));
}

// A column of times around a large number differs in its last digits alone, one of tiny numbers in
// its first.
TEST_F(OwnTables, NumbersFarFromZeroAndNearIt) {
  std::string text = "time,metres,same,label\n";
  for (int i = 0; i < 40; ++i)
    absl::StrAppend(&text, 1'700'000'000 + 10 * i, ",", i, "e-9,0.1,", i % 2, "\n");
  const auto splits = Csv(text);
  ASSERT_TRUE(splits.ok()) << splits.status();
  std::set<float> times;
  for (int64_t i = 0; i < splits->train->size(); ++i) {
    const std::vector<float> sample = Sample(*splits->train, i);
    times.insert(sample[0]);
    EXPECT_LT(std::abs(sample[0]), 2.0f);
    EXPECT_NEAR(sample[0], sample[1], 1e-3);
    EXPECT_EQ(sample[2], 0.0f);
  }
  EXPECT_THAT(times, SizeIs(splits->train->size())) << "ten seconds are seen";
}

TEST_F(OwnTables, WithoutATestAndWithOne) {
  EXPECT_THAT(Csv("a,label\n1,x\n2,y\n")->note, HasSubstr("none is kept for the test"));
  EXPECT_EQ(Csv("a,label\n1,x\n2,y\n3,y\n")->note, "");
}

}  // namespace
}  // namespace runnel::own_tables_test
