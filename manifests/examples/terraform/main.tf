# What can be ordered now, for a Terraform configuration that goes on from there. It changes nothing on the cluster.
#
#   terraform init && terraform plan -var gpu_class=l40s-24c

terraform {
  required_version = ">= 1.5"
  required_providers {
    kubernetes = {
      source  = "hashicorp/kubernetes"
      version = ">= 2.38"
    }
  }
}

variable "kubeconfig" {
  description = "Credentials of a user who is bound to the ClusterRole gpuclass-catalog-viewer."
  type        = string
  default     = "~/.kube/config"
}

variable "gpu_class" {
  description = "The class to order from."
  type        = string
}

variable "devices" {
  description = "How many devices one instance shall get."
  type        = number
  default     = 1
}

provider "kubernetes" {
  config_path = var.kubeconfig
}

data "kubernetes_resource" "gpu_class" {
  api_version = "catalog.cozystack.io/v1alpha1"
  kind        = "GPUClass"

  metadata {
    name = var.gpu_class
  }

  lifecycle {
    postcondition {
      condition     = self.object.status.maxPerInstance >= var.devices
      error_message = "One instance cannot get ${var.devices} of ${var.gpu_class}: ${self.object.status.message}"
    }
  }
}

data "kubernetes_resources" "gold" {
  api_version    = "catalog.cozystack.io/v1alpha1"
  kind           = "GPUClass"
  label_selector = "tier=gold"
  field_selector = "status.offered=true"
}

output "free" {
  description = "Devices of the class that are free."
  value       = data.kubernetes_resource.gpu_class.object.status.free
}

output "offered" {
  description = "What can be ordered of each class labelled tier=gold."
  value       = { for each in data.kubernetes_resources.gold.objects : each.metadata.name => each.status.orderable }
}
