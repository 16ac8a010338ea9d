// SPDX-License-Identifier: Apache-2.0
// Tables of measured kernels: which they are, what of them is predicted, what is refused and left
// out.
#include "validate/kernel_table.hpp"

#include "base/csv.hpp"
#include "base/error.hpp"

#include <gtest/gtest.h>

namespace penstock::kernel_table_test {
namespace {

const std::string kProduct = "gpu,dtype,m,n,k,latency_us\n";

std::string errors_of(const std::string& text) {
  try {
    kernels_report(text, "t.csv");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

bool mentions(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST(KernelTable, IsKnownByItsHeader) {
  for (const char* header : {"gpu,dtype,m,n,k,latency_us", "k,n,m,latency_us,dtype,device",
                             "gpu,kind,dtype,batch,seq,heads,kv_heads,head_dim,latency_us,src",
                             "gpu,op,ranks,bytes,latency_us", "gpu,op,m,k,latency_us,bytes,bw_gbs"})
    EXPECT_EQ(measured_format("t.csv.gz", std::string(header) + "\n1\n"), MeasuredFormat::kernels)
        << header;
  EXPECT_FALSE(is_kernel_table({"dtype", "m", "n", "k", "latency_us"}));
  EXPECT_FALSE(is_kernel_table({"gpu", "m", "n"}));
}

TEST(KernelTable, ARowIsPredictedWhateverTheOrderOfColumns) {
  const MeasuredReport a = kernels_report(kProduct + "h100,bf16,4096,8192,1024,120\n", "t.csv");
  const MeasuredReport b = kernels_report(
      "latency_us,k,n,m,dtype,extra,device\n120,1024,8192,4096,bf16,x,H100\n", "t.csv");
  ASSERT_EQ(a.rows.size(), 1U);
  EXPECT_EQ(a.rows[0].predicted_s, b.rows.at(0).predicted_s);
  EXPECT_DOUBLE_EQ(a.rows[0].measured_s.value(), 120e-6);
  EXPECT_EQ(a.rows[0].row_class, "h100 bf16");
  EXPECT_EQ(a.rows[0].name, "line 2: h100 bf16 4096 x 8192 x 1024");
}

TEST(KernelTable, AProductOf8BitsHasItsCastsBeforeIt) {
  const MeasuredReport r = kernels_report(
      kProduct + "h100,fp8,32768,256,65536,1\nh100,fp8_block,32768,256,65536,1\n", "t.csv");
  // 2 + 3 bytes of 2^31 elements at no more than the 3.35 TB/s of the data sheet.
  EXPECT_GT(r.rows.at(0).predicted_s.value(), 5.0 * 32768 * 65536 / 3.35e12);
}

TEST(KernelTable, EveryColumnThatIsMissingIsSaid) {
  const std::string all = errors_of("dtype,m,n,latency_us\nbf16,1,1,1\n");
  EXPECT_TRUE(mentions(all, "column 'gpu' (or 'device') is missing")) << all;
  EXPECT_TRUE(mentions(all, "column 'k' of a table of products is missing")) << all;
  const std::string near = errors_of("gpuu,dtype,m,n,k,latency_us\nh100,bf16,1,1,1,1\n");
  EXPECT_TRUE(mentions(near, "did you mean 'gpuu'?")) << near;
  const std::string other = errors_of("gpu,op,rank,bytes,latency_us\nh100,all_reduce,2,1024,9\n");
  EXPECT_TRUE(mentions(other, "'all_reduce' is a collective, and there is no column 'ranks'"))
      << other;
}

TEST(KernelTable, EveryCellThatIsNoNumberIsSaid) {
  const std::string all = errors_of(kProduct +
                                    "h100,bf16,x,1,1,1\n"
                                    "h100,bf16,1,0,1,1\n"
                                    "h100,bf16,1,1,1,\n");
  for (const char* part : {"t.csv:2:0: 'm': must be a number from 1 to 1e+15, got 'x'",
                           "t.csv:3:0: 'n': must be a number from 1 to 1e+15, got '0'",
                           "t.csv:4:0: 'latency_us': must be"})
    EXPECT_TRUE(mentions(all, part)) << part << "\n" << all;
}

TEST(KernelTable, AKindOfAttentionIsOneThatIsKnown) {
  const std::string all = errors_of(
      "gpu,kind,dtype,batch,seq,heads,kv_heads,head_dim,latency_us\nh100,causl,bf16,1,512,8,8,128,"
      "9\n");
  EXPECT_TRUE(
      mentions(all, "must be one of causal, full, mla, got 'causl'; did you mean 'causal'?"))
      << all;
}

TEST(KernelTable, RowsThatCannotBePredictedAreListedByTheirReason) {
  const MeasuredReport r = kernels_report(kProduct +
                                              "h100,bf16,512,512,512,9\n"
                                              "a100,fp8,512,512,512,9\n"
                                              "h100x,bf16,512,512,512,9\n"
                                              "a100,fp8,1024,512,512,9\n"
                                              "titan-x,bf16,512,512,512,9\n",
                                          "t.csv");
  EXPECT_EQ(r.rows.size(), 1U);
  EXPECT_EQ(r.left_out, 4U);
  ASSERT_EQ(r.notes.size(), 3U);
  EXPECT_EQ(
      r.notes[0],
      "1 row left out, 'h100x' is no device that is known here; did you mean 'h100'?: lines 4");
  EXPECT_EQ(r.notes[1], "1 row left out, nothing is known of kernels on Titan-X: lines 6");
  EXPECT_EQ(
      r.notes[2],
      "2 rows left out, products of 'fp8' on A100-80 were not measured (measured: bf16): lines "
      "3, 5");
}

TEST(KernelTable, WhereNoRowCanBePredictedItIsRefused) {
  EXPECT_TRUE(mentions(errors_of("gpu,family,kernel,batch,seq,latency_us\nh100,gdn,x,1,512,9\n"),
                       "1 row left out, kernel times have nothing of this kernel: lines 2"));
}

TEST(KernelTable, ADeviceWithoutMeasurementsIsAssumedAndSaysSo) {
  const MeasuredReport r = kernels_report(
      kProduct + "h800,bf16,4096,4096,4096,9\nh100,bf16,4096,4096,4096,9\n", "t.csv");
  EXPECT_NEAR(*r.rows.at(0).predicted_s, *r.rows.at(1).predicted_s, 1e-12);  // the same chip
  ASSERT_EQ(r.notes.size(), 1U);
  EXPECT_EQ(r.notes[0], "kernels of H800 are assumed as those of H100, by the ratio of the peaks");
}

TEST(KernelTable, AnUnevenLayerOfExpertsNeedsItsLoad) {
  const std::string header =
      "gpu,dtype,tokens,hidden,inter,topk,experts,gated,tp,ep,dist,load,latency_us\n";
  const MeasuredReport r = kernels_report(header +
                                              "h100,bf16,4096,4096,1536,8,128,1,1,8,pl1.2,,900\n"
                                              "h100,bf16,4096,4096,1536,8,128,1,1,8,pl1.2,1.8,900\n"
                                              "h100,bf16,4096,4096,1536,8,128,1,1,8,bal,,900\n",
                                          "t.csv");
  EXPECT_EQ(r.rows.size(), 2U);
  EXPECT_TRUE(mentions(r.notes.at(0), "the column 'load'")) << r.notes[0];
  EXPECT_GT(*r.rows[0].predicted_s, *r.rows[1].predicted_s);
}

TEST(KernelTable, ErrorsAreSummarizedByDeviceAndType) {
  const MeasuredReport r = kernels_report(kProduct +
                                              "h100,bf16,4096,4096,4096,200\n"
                                              "h100,fp8,4096,4096,4096,150\n"
                                              "b200,bf16,4096,4096,4096,100\n",
                                          "t.csv");
  const MeasuredSummary s = summarize(r, RowChoice::all);
  EXPECT_TRUE(s.time_by_depth.empty());
  EXPECT_EQ(s.time_by_class.size(), 3U);
  EXPECT_EQ(s.time_by_class.at("b200 bf16").n, 1U);
}

}  // namespace
}  // namespace penstock::kernel_table_test
