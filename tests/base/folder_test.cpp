// SPDX-License-Identifier: Apache-2.0
#include "base/folder.hpp"

#include "base/error.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <fstream>

namespace penstock::folder_test {
namespace {

namespace fs = std::filesystem;

class Folder : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "penstock-folder-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
    fs::create_directory(path_ + "/b");
    for (const char* name : {"c", "a", "b/d"}) std::ofstream(path_ + "/" + name) << "x";
    fs::create_directory_symlink(path_ + "/b", path_ + "/link");
    fs::create_symlink(path_ + "/a", path_ + "/linked");
  }
  void TearDown() override { fs::remove_all(path_); }
  std::string path_;
};

TEST_F(Folder, NamesAreSorted) {
  EXPECT_EQ(names_in(path_), (std::vector<std::string>{"a", "b", "c", "link", "linked"}));
}

TEST_F(Folder, HasNoNamesWhereThereIsNone) {
  EXPECT_TRUE(names_in(path_ + "/none").empty());
  EXPECT_TRUE(names_in(path_ + "/a").empty());
}

TEST_F(Folder, ThatCannotBeReadIsNoEmptyOne) {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{0, before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  EXPECT_THROW(names_in(path_), SystemError);
  EXPECT_THROW(files_below(path_), SystemError);
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(Folder, FilesBelowAreThoseOfFoldersButNotOfLinksToFolders) {
  EXPECT_EQ(files_below(path_), (std::vector<std::string>{path_ + "/a", path_ + "/b/d",
                                                          path_ + "/c", path_ + "/linked"}));
  EXPECT_EQ(files_below(path_ + "/b/"), std::vector<std::string>{path_ + "/b/d"});
}

TEST_F(Folder, IsRemovedWithItsFiles) {
  remove_folder((path_ + "/b").c_str());
  EXPECT_FALSE(fs::exists(path_ + "/b"));
  remove_folder((path_ + "/none").c_str());
}

}  // namespace
}  // namespace penstock::folder_test
