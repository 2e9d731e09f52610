#include "proto/base/utf8.h"

#include <string>

#include "gtest/gtest.h"

namespace runnel::utf8_test {
namespace {

TEST(Utf8, TakesWhatIsWellFormed) {
  for (const char* text : {"", "/data/mnist", "\x7f", "\xc2\x80", "\xc3\xa9", "\xdf\xbf",
                           "\xe0\xa0\x80", "\xe2\x82\xac", "\xed\x9f\xbf", "\xef\xbf\xbf",
                           "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xf0\x9f\x98\x80z"}) {
    EXPECT_TRUE(IsUtf8(text)) << text;
  }
  EXPECT_TRUE(IsUtf8(std::string(1, '\0')));
}

TEST(Utf8, RefusesEverythingElse) {
  for (const char* text : {"/data/\xe9t\xe9", "\x80", "\xc0\x80", "\xc1\xbf", "\xc3", "a\xc3z",
                           "\xe0\x9f\xbf", "\xe2\x82", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80", "\xf5\x80\x80\x80", "\xff", "\xe2\x28\xa1"}) {
    EXPECT_FALSE(IsUtf8(text)) << text;
  }
}

}  // namespace
}  // namespace runnel::utf8_test
