# Workers by the number of cores; a cluster of them; a linear model.
library(parallel)
cores <- detectCores()
cat(!is.na(cores) && cores >= 1, "\n")
cat(sum(unlist(mclapply(1:100, function(n) n^2, mc.cores = cores))), "\n")
cluster <- makeCluster(2)
cat(sum(parSapply(cluster, 1:100, function(n) n)), "\n")
stopCluster(cluster)
cat(round(coef(lm(mpg ~ wt, data = mtcars)), 3), "\n")
