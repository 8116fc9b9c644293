// SPDX-License-Identifier: Apache-2.0
// A namespace of Service Bus with work queues, the monitor queue, and an identity for each side with the rights that it needs and
// no more: docs/operate/rights.md says which command needs which.
//
//   az deployment group create -g my-group -f deploy/bicep/main.bicep -p namespaceName=contoso

@description('The name of the namespace, contoso in contoso.servicebus.windows.net.')
param namespaceName string

param location string = resourceGroup().location

@description('Basic has no scheduled messages, which companions are.')
@allowed(['Standard', 'Premium'])
param sku string = 'Standard'

@description('The queues whose deadlines are watched.')
param queues array = ['orders']

@description('The setting monitorQueue.')
param monitorQueue string = 'overdue-monitor'

@description('The setting monitorQueues. When you lower it, the queues that are left over stay, with their roles: delete them when they are empty.')
@minValue(1)
@maxValue(16)
param monitorQueues int = 1

@description('Whether Overdue may read how the queues were made, for which Service Bus wants the Manage right. Without it the configuration has to say so: docs/operate/rights.md.')
param manage bool = false

var sender = '69a216fc-b8fb-44d8-bc22-1f3c2cd27a39' // Azure Service Bus Data Sender
var receiver = '4f6d3b9b-027b-4f4c-9142-0e5a2a2247e0' // Azure Service Bus Data Receiver
var owner = '090c5cfd-751d-490a-894a-3ce6f1109419' // Azure Service Bus Data Owner: Manage

resource namespace 'Microsoft.ServiceBus/namespaces@2022-10-01-preview' = {
  name: namespaceName
  location: location
  sku: { name: sku, tier: sku }
  properties: {
    disableLocalAuth: true // identities alone, no connection strings
    minimumTlsVersion: '1.2'
  }
}

resource work 'Microsoft.ServiceBus/namespaces/queues@2022-10-01-preview' = [
  for name in queues: {
    parent: namespace
    name: name
    properties: {
      deadLetteringOnMessageExpiration: true // else what expires is dropped
      defaultMessageTimeToLive: 'P14D'
      lockDuration: 'PT1M'
      maxDeliveryCount: 10
    }
  }
]

// No sessions, no partitions, no duplicate detection, no time to live: `overdue doctor` checks it.
resource companions 'Microsoft.ServiceBus/namespaces/queues@2022-10-01-preview' = [
  for n in range(1, monitorQueues): {
    parent: namespace
    name: n == 1 ? monitorQueue : '${monitorQueue}.${n}'
    properties: {
      lockDuration: 'PT10S' // how long the companions of a monitor that was killed wait for the next one
      maxDeliveryCount: 2000
      requiresSession: false
      requiresDuplicateDetection: false
    }
  }
]

// The apps with their sidecars, `overdue proxy`: they have one identity.
resource app 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${namespaceName}-app'
  location: location
}

// `overdue monitor`.
resource monitor 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${namespaceName}-monitor'
  location: location
}

var role = 'Microsoft.Authorization/roleDefinitions'
var both = [sender, receiver]

// The monitor queues: both sides write companions; the monitor receives them, a proxy measures the clock and cancels what is met.
resource appOnMonitorQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in range(0, 2 * monitorQueues): {
    scope: companions[i / 2]
    name: guid(companions[i / 2].id, 'app', both[i % 2])
    properties: {
      principalId: app.properties.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(role, both[i % 2])
    }
  }
]

resource monitorOnMonitorQueue 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for i in range(0, 2 * monitorQueues): {
    scope: companions[i / 2]
    name: guid(companions[i / 2].id, 'monitor', both[i % 2])
    properties: {
      principalId: monitor.properties.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(role, both[i % 2])
    }
  }
]

// The work queues: the app sends and receives, as it does without Overdue; the monitor looks and expires. Their settings are shown
// to whoever may manage them.
resource appSends 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, i) in queues: {
    scope: work[i]
    name: guid(work[i].id, 'app', manage ? owner : sender) // the role of an assignment cannot change
    properties: {
      principalId: app.properties.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(role, manage ? owner : sender)
    }
  }
]

resource appReceives 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, i) in queues: {
    scope: work[i]
    name: guid(work[i].id, 'app', receiver)
    properties: {
      principalId: app.properties.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(role, receiver)
    }
  }
]

resource monitorLooks 'Microsoft.Authorization/roleAssignments@2022-04-01' = [
  for (name, i) in queues: {
    scope: work[i]
    name: guid(work[i].id, 'monitor', manage ? owner : receiver)
    properties: {
      principalId: monitor.properties.principalId
      principalType: 'ServicePrincipal'
      roleDefinitionId: subscriptionResourceId(role, manage ? owner : receiver)
    }
  }
]

output namespace string = '${namespaceName}.servicebus.windows.net'
output appIdentity string = app.id
output appClientId string = app.properties.clientId
output monitorIdentity string = monitor.id
output monitorClientId string = monitor.properties.clientId
